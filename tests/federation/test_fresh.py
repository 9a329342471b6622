"""Starting over: nothing of an earlier life is used again, and what was shown before stays counted."""

import stat
from dataclasses import replace

import numpy as np
import pytest

from fdml.errors import FdmlError, SettingsError, StateCorrupt
from fdml.federation.join import align, join
from fdml.federation.party_folder import LABEL_FLIPS, PartyFolder
from fdml.monitor.listeners import ignore_events
from fdml.party.checkpoint import FinishedModel
from fdml.privacy.build_guard import guard_for
from fdml.storage.lock import exclusive_lock
from tests.federation.folders import serving, together, write_run
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


def whole_run(home, *, fresh):
    with serving(home / "run.toml", fresh=fresh) as server:
        together(
            *(
                lambda party=party: join(
                    home / party / "party.toml", plain=True, server=server.address, fresh=fresh, on_event=ignore_events
                )
                for party in BOTH
            )
        )
    assert server.error is None


def aligned(home, *, fresh):
    with serving(home / "run.toml", fresh=fresh) as server:
        together(
            *(
                lambda party=party: align(
                    home / party / "party.toml", plain=True, server=server.address, fresh=fresh, on_event=ignore_events
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


@pytest.mark.parametrize("start", [align, join], ids=["align", "join"])
def test_finding_5_starting_over_forgets_noise_key_releases_and_checkpoints_by_either_command(tmp_path, start):
    """Before, `fdml align --fresh` kept them: the same noise, and old releases for other rows."""
    settings_of(tmp_path, guard=NOISE, training="peer_timeout_seconds = 0.2\n")
    folder = PartyFolder(tmp_path / "ann" / "party.toml")
    before = folder.member(folder.endpoint(plain=True, server="127.0.0.1:9")).noise
    folder.save_alignment(SHARED)
    folder.disk.replace("releases", b"old")
    folder.save_result(FinishedModel({}, b"m" * 32, reported=True))
    (tmp_path / "ann" / "history.json").write_text("[]")
    with pytest.raises(FdmlError, match="server"):
        start(
            tmp_path / "ann" / "party.toml",
            fresh=True,
            plain=True,
            server="127.0.0.1:1",
            wait=0.2,
            on_event=ignore_events,
        )
    again = PartyFolder(tmp_path / "ann" / "party.toml")
    assert again.disk.read("releases") is None
    assert again.shared_rows() is None
    assert again.finished_model() is None
    assert not (tmp_path / "ann" / "history.json").exists()
    assert again.member(again.endpoint(plain=True, server="127.0.0.1:9")).noise != before


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
    whole_run(tmp_path, fresh=False)
    folder = PartyFolder(tmp_path / "ann" / "party.toml")
    member, shared = folder.member(folder.endpoint(plain=True, server="127.0.0.1:9")), folder.shared_rows()
    schedule = member.plan(2, shared).schedule(96)

    def opened(alignment):
        guard_for(member.guard, schedule, member.noise, disk=folder.disk, facts=member.facts(alignment))

    opened(shared)
    with pytest.raises(StateCorrupt, match=r"store of releases belongs to another data; .*--fresh at every side"):
        opened(replace(shared, digest=b"e" * 32))


def test_finding_6_every_life_shows_the_same_labels_and_they_are_counted_once(tmp_path):
    settings_of(tmp_path, privacy=PRIVATE)
    shown = []
    for fresh in (False, True):
        digests = aligned(tmp_path, fresh=fresh)
        folder = PartyFolder(tmp_path / "ann" / "party.toml")
        shown.append((digests["ann"], folder.flips().secret, folder.shared_rows().train))
    assert shown[0][0] != shown[1][0], "the rows have another order"
    assert not np.array_equal(shown[0][2], shown[1][2])
    assert shown[0][1] == shown[1][1], "the secret outlives the run"
    folder = PartyFolder(tmp_path / "ann" / "party.toml")
    book = folder.ledger().accounts.read()
    assert book.label_epsilons() == {"label": 1.0}
    assert len(book.runs) == 2
    secret = tmp_path / "ann" / "ledger" / LABEL_FLIPS
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_releases_of_all_lives_are_counted_and_a_total_refuses_the_next(tmp_path):
    settings_of(tmp_path, guard=NOISE)
    for fresh in (False, True):
        whole_run(tmp_path, fresh=fresh)
    for party in BOTH:
        runs = PartyFolder(tmp_path / party / "party.toml").ledger().accounts.read().runs
        assert [(each.counts.releases, each.counts.held_out) for each in runs.values()] == [(2, 2), (2, 2)]
    path = tmp_path / "bob" / "party.toml"
    path.write_text(path.read_text().replace("[guard]", "[guard]\ntotal_epsilon = 1.0"))
    folder = PartyFolder(path)
    member = folder.member(folder.endpoint(plain=True, server="127.0.0.1:1"))
    with pytest.raises(SettingsError, match=r"over guard\.total_epsilon 1; .* is spent already"):
        folder.ledger().open_run(folder.run, folder.settings.guard, member.plan(2, SHARED).schedule(96), member.noise)


@pytest.mark.parametrize("start", [align, join], ids=["align", "join"])
def test_finding_25_a_second_process_of_a_party_gets_one_line(tmp_path, start):
    settings_of(tmp_path)
    with (
        exclusive_lock(tmp_path / "ann" / "state", "process"),
        pytest.raises(SettingsError, match=r"another process of party 'ann' is running \(process \d+\): .* is in use"),
    ):
        start(tmp_path / "ann" / "party.toml", plain=True, server="127.0.0.1:1", on_event=ignore_events)
