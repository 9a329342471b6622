"""The end of a run's life (finding 20): secrets, tokens and logs go; model, statement and ledger stay."""

import shutil

import pytest

from fdml.errors import SettingsError
from fdml.federation.forget import end_of_alignments, end_of_life
from fdml.federation.join import join
from fdml.federation.party_files import PARTS, parts_folder
from fdml.federation.party_folder import PartyFolder
from fdml.federation.run_folder import MODEL
from fdml.federation.serve import serve
from fdml.monitor.listeners import ignore_events
from fdml.party.settings import read_party
from fdml.storage.lock import exclusive_lock
from tests.cli.commands import call, fail, succeed
from tests.federation.folders import RUN, serving, together, write_run

BOTH = ("ann", "bob")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A whole run."""
    home = tmp_path_factory.mktemp("trained")
    write_run(home)
    with serving(home / "run.toml") as server:
        together(
            *(
                lambda party=party: join(
                    home / party / "party.toml", plain=True, server=server.address, on_event=ignore_events
                )
                for party in BOTH
            )
        )
    assert server.error is None
    return home


@pytest.fixture
def finished(trained, tmp_path):
    """A copy of its folders, of which things may be forgotten."""
    return shutil.copytree(trained, tmp_path / "home")


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


def secrets_of(home):
    """The group key, and that of the run, as files may hold them."""
    folder = PartyFolder(home / "ann" / "party.toml")
    keys = [folder.shared_rows().key.secret, folder.kept.load().newest.key.secret]
    return [form for key in keys for form in (key, key.hex().encode(), key.hex().encode("utf-32-le"))]


def all_bytes(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_finding_20_nothing_secret_is_left_at_any_side_and_what_is_of_use_stays(finished):
    keys = secrets_of(finished)
    assert any(key in all_bytes(finished) for key in keys)
    for path in ("ann/party.toml", "bob/party.toml", "federation.toml"):
        text = succeed("forget", finished / path, "--run", "first", "--alignments", "--yes")
        assert "removed; what stays:" in text
        assert "--alignments" not in text
    assert not any(key in all_bytes(finished) for key in keys)
    for party in BOTH:
        assert left_in(finished / party / RUN / "state") == ["lock"]
        assert left_in(finished / party) == ["alignments", "data.csv", "decisions", "ledger", "party.toml", "runs"]
        assert left_in(finished / party / "alignments") == []
        assert left_in(finished / party / RUN) == sorted(
            [
                ".serving.turn",
                "forgotten",
                "measures.json",
                MODEL,
                "privacy.json",
                "privacy.md",
                "report.html",
                "run.json",
                "serving",
            ]
            + ["state"]
            + ["history.json"] * (party == "ann")
        )
        assert PartyFolder(finished / party / "party.toml").ledger().accounts.read().runs
    assert left_in(finished / "server" / RUN / "state") == ["lock"]


def test_what_goes_is_listed_by_what_it_is(finished):
    found = end_of_life(finished / "ann" / "party.toml", "first")
    assert found.finished
    assert "alignment: which rows the run uses, and its key" in found.removes
    assert any("group key" in line and "--alignments removes it" in line for line in found.stays)
    server = end_of_life(finished / "federation.toml", "first")
    assert any(line.startswith("journal: ") for line in server.removes)
    assert "rows-plan: which generation of the alignment the run uses" in server.removes
    assert any(line.startswith("tokens or blinded points") for line in server.stays)
    (kept,) = end_of_alignments(finished / "ann" / "party.toml").removes
    assert "group key, blinding secret" in kept
    (kept,) = end_of_alignments(finished / "federation.toml").removes
    assert "tokens or blinded points" in kept


def test_a_run_that_is_forgotten_leaves_the_alignment_for_the_next_and_alignments_go_when_asked(finished):
    path = finished / "ann" / "party.toml"
    assert "--alignments removes it" in succeed("forget", path, "--run", "first", "--yes")
    assert PartyFolder(path, finished / "run.toml").kept.load().newest is not None
    assert "group key" in succeed("forget", path, "--alignments", "--yes")
    assert PartyFolder(path, finished / "run.toml").kept.load().newest is None
    assert "no alignment is kept" in succeed("forget", path, "--alignments", "--yes")


def test_an_alignment_that_a_run_may_need_stays(finished):
    other = finished / "other.toml"
    other.write_text((finished / "run.toml").read_text().replace('"first"', '"second"'))
    folder = PartyFolder(finished / "ann" / "party.toml", other)
    folder.run_folder.begin()
    said = fail(SettingsError, "forget", finished / "ann" / "party.toml", "--alignments", "--yes")
    assert "run 'second' has not finished and may need the kept alignment" in said
    assert folder.kept.load().newest is not None
    succeed("forget", finished / "ann" / "party.toml", "--alignments", "--yes", "--unfinished")
    assert folder.kept.load().newest is None


def test_a_folder_in_use_is_left_alone(finished):
    for path, state in (("ann/party.toml", f"ann/{RUN}/state"), ("federation.toml", f"server/{RUN}/state")):
        with exclusive_lock(finished / state, "process"):
            before = left_in(finished / state)
            assert "is in use" in fail(SettingsError, "forget", finished / path, "--run", "first", "--yes")
            assert left_in(finished / state) == before


def test_a_run_that_is_not_over_is_forgotten_only_if_it_is_given_up(tmp_path):
    write_run(tmp_path)
    folder = PartyFolder(tmp_path / "ann" / "party.toml")
    folder.run_folder.begin()
    folder.member(folder.endpoint(plain=True, server="127.0.0.1:9"))
    path = tmp_path / "ann" / "party.toml"
    assert "has not finished" in fail(SettingsError, "forget", path, "--run", "first", "--yes")
    assert (tmp_path / "ann" / RUN / "state" / "noise-key").exists()
    succeed("forget", path, "--all", "--yes", "--unfinished")
    assert not (tmp_path / "ann" / RUN / "state" / "noise-key").exists()


def test_it_asks_first(finished):
    path = finished / "bob" / "party.toml"
    result = call("forget", path, "--all")
    assert result.exit_code == 1
    assert "Remove them for good?" in result.output
    assert (finished / "bob" / RUN / "state" / "alignment").exists()


def test_a_side_that_has_forgotten_has_nothing_more_to_forget(finished):
    path = finished / "bob" / "party.toml"
    succeed("forget", path, "--run", "first", "--yes")
    assert "nothing is left to remove" in succeed("forget", path, "--all", "--yes")


def test_a_forgotten_run_does_not_begin_again(finished):
    succeed("forget", finished / "bob" / "party.toml", "--run", "first", "--yes")
    succeed("forget", finished / "federation.toml", "--run", "first", "--yes")
    said = "the state of run 'first' was removed with `fdml forget`; give the run a new name"
    with pytest.raises(SettingsError, match=said):
        join(finished / "bob" / "party.toml", plain=True, server="127.0.0.1:1", on_event=ignore_events)
    with pytest.raises(SettingsError, match=said):
        serve(finished / "federation.toml", finished / "run.toml", plain=True)


def test_the_run_has_to_be_named(finished):
    path = finished / "bob" / "party.toml"
    for words in ((), ("--run", "first", "--all")):
        assert "say which run with --run NAME, or --all, or --alignments; the runs that have begun here: first" in fail(
            SettingsError, "forget", path, *words
        )
    assert "there is no run 'second' in" in fail(SettingsError, "forget", path, "--run", "second")


def test_what_is_no_settings_file_is_named(tmp_path):
    assert "there is no file" in fail(SettingsError, "forget", tmp_path / "nothing.toml", "--all")
    write_run(tmp_path)
    assert "this is a run.toml" in fail(SettingsError, "forget", tmp_path / "run.toml", "--all")
    assert "there is no run 'first' in" in fail(SettingsError, "forget", tmp_path / "federation.toml", "--run", "first")


def test_parts_in_a_folder_that_other_machines_see_go_with_the_state(finished):
    path = finished / "ann" / "party.toml"
    path.write_text(path.read_text() + '[workers]\nkind = "processes"\nfolder = "../shared"\n')
    settings, state = read_party(path), finished / "ann" / RUN / "state"
    place = parts_folder(settings, PartyFolder(path).run_folder.state / PARTS)
    assert place.parent.resolve() == (finished / "shared").resolve()
    place.mkdir(parents=True)
    (place / "values").write_bytes(b"rows")
    (state / PARTS).mkdir()
    text = succeed("forget", path, "--run", "first", "--yes")
    assert text.count("rows as workers have encoded them") == 2
    assert list((finished / "shared").iterdir()) == []
    assert left_in(state) == ["lock"]
