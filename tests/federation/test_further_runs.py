"""A further run: nothing of an earlier one is used again or overwritten, and what was shown before stays counted."""

import stat
from dataclasses import replace

import numpy as np
import pytest

from fdml.errors import FdmlError, SettingsError, StateCorrupt
from fdml.federation.join import align, join
from fdml.federation.party_folder import LABEL_FLIPS, PartyFolder
from fdml.federation.run_folder import MODEL, run_names
from fdml.federation.serve import serve
from fdml.models.bundle import Bundle
from fdml.monitor.listeners import ignore_events
from fdml.party.checkpoint import FinishedModel
from fdml.privacy.build_guard import guard_for
from fdml.protocol.schedule import schedule_of
from fdml.storage.lock import exclusive_lock
from tests.federation.folders import RUN, rename, serving, together, write_run
from tests.federation.test_party_folder import SHARED

NOISE = '[guard]\nclip = 2.0\nnoise = "gaussian"\nsigma = 4.0\n'
PRIVATE = '[privacy]\nlabels = "private"\nlabel_epsilon = 1.0\n'
BOTH = ("ann", "bob")


def settings_of(home, *, guard="", privacy="", training=""):
    write_run(home, training=training)
    run = home / "run.toml"
    run.write_text(run.read_text() + privacy)
    for party in BOTH:
        path = home / party / "party.toml"
        path.write_text(path.read_text() + guard)


def whole_run(home, name="first"):
    rename(home / "run.toml", name)
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


def aligned(home, name):
    rename(home / "run.toml", name)
    with serving(home / "run.toml") as server:
        together(
            *(
                lambda party=party: align(
                    home / party / "party.toml", plain=True, server=server.address, on_event=ignore_events
                )
                for party in BOTH
            )
        )
        shown = {party: PartyFolder(home / party / "party.toml").shared_rows().digest for party in BOTH}
        together(
            *(
                lambda party=party: join(
                    home / party / "party.toml", plain=True, server=server.address, on_event=ignore_events
                )
                for party in BOTH
            )
        )
    return shown


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize("start", [align, join], ids=["align", "join"])
def test_finding_5_a_further_run_has_no_noise_key_releases_or_checkpoints_of_another(tmp_path, start):
    """Before, starting over by `fdml align` kept them: the same noise, and old releases for other rows."""
    settings_of(tmp_path, guard=NOISE, training="peer_timeout_seconds = 0.2\n")
    folder = PartyFolder(tmp_path / "ann" / "party.toml")
    before = folder.member(folder.endpoint(plain=True, server="127.0.0.1:9")).noise
    folder.run_folder.begin()
    folder.save_alignment(SHARED)
    folder.disk.replace("releases", b"old")
    folder.save_result(FinishedModel({}, b"m" * 32, reported=True))
    kept = files_of(tmp_path / "ann" / RUN)
    rename(tmp_path / "run.toml", "second")
    with pytest.raises(FdmlError, match="server"):
        start(tmp_path / "ann" / "party.toml", plain=True, server="127.0.0.1:1", wait=0.2, on_event=ignore_events)
    again = PartyFolder(tmp_path / "ann" / "party.toml")
    assert again.disk.read("releases") is None
    assert again.shared_rows() is None
    assert again.finished_model() is None
    assert again.member(again.endpoint(plain=True, server="127.0.0.1:9")).noise != before
    assert files_of(tmp_path / "ann" / RUN) == kept, "nothing of the first run has changed"


def test_two_runs_leave_a_model_and_a_statement_each(tmp_path):
    settings_of(tmp_path)
    whole_run(tmp_path)
    kept = {side: files_of(tmp_path / side / RUN) for side in (*BOTH, "server")}
    whole_run(tmp_path, "second")
    for side, files in kept.items():
        assert files_of(tmp_path / side / RUN) == files
        assert run_names(tmp_path / side) == ["first", "second"]
    for party in BOTH:
        cards = [Bundle.load(tmp_path / party / "runs" / name / MODEL).card for name in ("first", "second")]
        assert [card.run for card in cards] == ["first", "second"]
        assert "run 'second'" in (tmp_path / party / "runs" / "second" / "privacy.md").read_text()


def test_the_same_name_with_other_settings_is_refused_at_every_side_by_the_setting(tmp_path):
    settings_of(tmp_path)
    whole_run(tmp_path)
    run = tmp_path / "run.toml"
    run.write_text(run.read_text().replace("epochs = 2", "epochs = 5"))
    said = r"^training\.epochs is 5 here, 2 when run 'first' began; give it a new name$"
    for start in (align, join):
        with pytest.raises(SettingsError, match=said):
            start(tmp_path / "ann" / "party.toml", plain=True, server="127.0.0.1:1", on_event=ignore_events)
    with pytest.raises(SettingsError, match=said):
        serve(tmp_path / "federation.toml", run, plain=True)


def test_a_run_toml_may_stand_anywhere(tmp_path):
    settings_of(tmp_path)
    other = tmp_path / "settings" / "second.toml"
    other.parent.mkdir()
    (tmp_path / "run.toml").rename(other)
    rename(other, "second")
    folder = PartyFolder(tmp_path / "ann" / "party.toml", other)
    assert (folder.run.name, folder.run.federation) == ("second", "small")
    assert folder.run_folder.path == tmp_path / "ann" / "runs" / "second"


def test_finding_5_noise_is_bound_to_the_run_and_to_the_order_of_the_rows(tmp_path):
    settings_of(tmp_path, guard=NOISE)
    folder = PartyFolder(tmp_path / "ann" / "party.toml")
    member = folder.member(folder.endpoint(plain=True, server="127.0.0.1:9"))
    keys = {member.noise_key(SHARED).secret}
    keys.add(member.noise_key(replace(SHARED, digest=b"e" * 32)).secret)
    write_run(tmp_path, training="passes = 2\n")
    changed = PartyFolder(tmp_path / "ann" / "party.toml")
    keys.add(changed.member(changed.endpoint(plain=True, server="127.0.0.1:9")).noise_key(SHARED).secret)
    keys.add(member.noise.secret)
    assert len(keys) == 4


def test_finding_5_stored_releases_of_another_alignment_are_refused_with_the_way_out(tmp_path):
    """A crash in the middle of starting over, or an alignment file that someone removed."""
    settings_of(tmp_path, guard=NOISE)
    whole_run(tmp_path)
    folder = PartyFolder(tmp_path / "ann" / "party.toml")
    member, shared = folder.member(folder.endpoint(plain=True, server="127.0.0.1:9")), folder.shared_rows()
    schedule = schedule_of(96, member.training(shared))

    def opened(alignment):
        guard_for(member.guard, schedule, member.noise, disk=folder.disk, facts=member.facts(alignment))

    opened(shared)
    with pytest.raises(StateCorrupt, match=r"store of releases belongs to another data; .*a new name at every side"):
        opened(replace(shared, digest=b"e" * 32))


def test_finding_6_every_run_shows_the_same_labels_and_they_are_counted_once(tmp_path):
    settings_of(tmp_path, privacy=PRIVATE)
    shown = []
    for name in ("first", "second"):
        digests = aligned(tmp_path, name)
        folder = PartyFolder(tmp_path / "ann" / "party.toml")
        shown.append((digests["ann"], folder.flips().secret, folder.shared_rows().train))
    assert shown[0][0] == shown[1][0], "the alignment is kept"
    assert np.array_equal(shown[0][2], shown[1][2])
    assert shown[0][1] == shown[1][1], "the secret outlives the run"
    folder = PartyFolder(tmp_path / "ann" / "party.toml")
    book = folder.ledger().accounts.read()
    assert book.label_epsilons() == {"label": 1.0}
    assert len(book.runs) == 2
    secret = tmp_path / "ann" / "ledger" / LABEL_FLIPS
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_releases_of_all_runs_are_counted_and_a_total_refuses_the_next(tmp_path):
    settings_of(tmp_path, guard=NOISE)
    for name in ("first", "second"):
        whole_run(tmp_path, name)
    for party in BOTH:
        runs = PartyFolder(tmp_path / party / "party.toml").ledger().accounts.read().runs
        assert [(each.counts.releases, each.counts.held_out) for each in runs.values()] == [(2, 2), (2, 2)]
    path = tmp_path / "bob" / "party.toml"
    path.write_text(path.read_text().replace("[guard]", "[guard]\ntotal_epsilon = 1.0"))
    folder = PartyFolder(path)
    member = folder.member(folder.endpoint(plain=True, server="127.0.0.1:1"))
    schedule = schedule_of(96, member.training(SHARED))
    with pytest.raises(SettingsError, match=r"over guard\.total_epsilon 1; .* is spent already"):
        folder.ledger().open_run(folder.run, folder.settings.guard, schedule, member.noise)


@pytest.mark.parametrize("start", [align, join], ids=["align", "join"])
def test_finding_25_a_second_process_of_a_party_gets_one_line(tmp_path, start):
    settings_of(tmp_path)
    with (
        exclusive_lock(tmp_path / "ann" / RUN / "state", "process"),
        pytest.raises(
            SettingsError,
            match=r"another process of party 'ann' in run 'first' is running \(process \d+\): .* is in use",
        ),
    ):
        start(tmp_path / "ann" / "party.toml", plain=True, server="127.0.0.1:1", on_event=ignore_events)
