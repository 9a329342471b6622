"""Whole runs over gRPC on loopback, with the server and the parties as threads of this process."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from fdml.align.sealed_metrics import open_metrics
from fdml.errors import AlignmentError, PeerTimeout, SettingsError
from fdml.events import Aligned, EpochDone, Evaluated, Finished, Joined, Remark, Waiting
from fdml.federation.decision_log import Decision
from fdml.federation.join import align, join
from fdml.federation.party_folder import HISTORY, PartyFolder
from fdml.federation.party_home import decision_log
from fdml.federation.run_folder import MODEL
from fdml.models.bundle import Bundle
from fdml.monitor.listeners import ignore_events
from fdml.settings import run_hash
from fdml.storage.arrays import hash_arrays
from tests.federation.folders import EPOCHS, ROWS, RUN, serving, together, write_run


def joined(home, party, server, events=None, **options):
    on_event = ignore_events if events is None else events.append
    return lambda: join(home / party / "party.toml", plain=True, server=server.address, on_event=on_event, **options)


def aligned(home, party, server, **options):
    return lambda: align(
        home / party / "party.toml", plain=True, server=server.address, on_event=ignore_events, **options
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run: its folder, what the server and the parties gave, and all events."""
    home = tmp_path_factory.mktemp("join") / "run"
    write_run(home)
    events = {"ann": [], "bob": []}
    with serving(home / "run.toml") as server:
        results = together(*(joined(home, party, server, events[party]) for party in events))
    return home, server, dict(zip(events, results, strict=True)), events


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_every_party_leaves_the_model_it_reported(finished):
    home, server, results, _ = finished
    assert server.error is None
    for party, result in results.items():
        assert result.bundle == home / party / RUN / MODEL
        assert hash_arrays(Bundle.load(result.bundle).parameters) == result.model_hash
        assert (result.resumed_at, result.seconds >= 0) == (0, True)


def test_the_bundles_of_a_run_have_one_version_and_the_label_partys_has_the_figures(finished):
    home, _, _, events = finished
    ann, bob = (Bundle.load(home / party / RUN / MODEL) for party in ("ann", "bob"))
    assert ann.card.version == bob.card.version
    assert ann.card.metrics.test_loss == of_kind(events["ann"], Evaluated)[-1].test_loss
    assert (bob.card.metrics, bob.labels) == (None, None)
    assert ann.labels.classes.tolist() == ["no", "yes"]


def test_the_server_has_the_metrics_of_every_epoch_sealed_for_all_parties(finished):
    home, server, _, events = finished
    sealed = server.result.state.history
    assert sorted(sealed) == list(range(1, EPOCHS + 1))
    for party in ("ann", "bob"):
        key = PartyFolder(home / party / "party.toml").shared_rows().key
        found = [open_metrics(key, sealed[epoch]).test_loss for epoch in sorted(sealed)]
        assert found == [each.test_loss for each in of_kind(events["ann"], Evaluated)]
    assert set(server.result.traffic) == {"ann", "bob"}
    assert all(min(both) > 0 for both in server.result.traffic.values())


def test_listeners_of_a_party_get_its_whole_part(finished):
    _, _, _, events = finished
    for party, each in events.items():
        assert of_kind(each, Aligned) == [Aligned(party, ROWS, ROWS * 4 // 5, ROWS // 5)]
        assert of_kind(each, Joined) == [Joined(party, 0)]
        assert len(of_kind(each, EpochDone)) == EPOCHS
        assert isinstance(each[-1], Finished)


def test_the_alignment_report_counts_the_bytes_that_travelled(finished):
    home = finished[0]
    for party in ("ann", "bob"):
        report = PartyFolder(home / party / "party.toml").shared_rows().report
        assert (report.mode, report.shared, dict(report.rows)) == ("tokens", ROWS, {"ann": ROWS, "bob": ROWS})
        assert report.bytes_sent > ROWS * 16, "a token of 16 bytes for every row"
        assert report.bytes_received > 0


def test_a_party_writes_its_history_and_its_privacy_statement(finished):
    home = finished[0]
    assert (home / "ann" / RUN / HISTORY).is_file()
    assert not (home / "bob" / RUN / HISTORY).exists(), "only the label party has figures"
    for party in ("ann", "bob"):
        assert f"party '{party}'" in (home / party / RUN / "privacy.md").read_text()
        assert "`--plain`" in (home / party / RUN / "privacy.md").read_text()


def test_a_refused_consent_is_told_to_all_sides_by_name_and_can_be_given_later(tmp_path):
    """Finding 15, over the network: `max_rows` of one party ends the alignment of both."""
    home = tmp_path / "run"
    write_run(home)
    ann = home / "ann" / "party.toml"
    ann.write_text(ann.read_text().replace(f"max_rows = {ROWS}", f"max_rows = {ROWS - 1}"))
    with serving(home / "run.toml") as server:
        errors = []

        def refused(party):
            with pytest.raises(AlignmentError) as error:
                joined(home, party, server)()
            errors.append(str(error.value))

        together(*(lambda party=party: refused(party) for party in ("ann", "bob")))
        assert len(errors) == 2
        assert all("party 'ann' does not consent" in text and "align.max_rows of 'ann' is" in text for text in errors)
        ann.write_text(ann.read_text().replace(f"max_rows = {ROWS - 1}", f"max_rows = {ROWS}"))
        first = PartyFolder(ann)
        assert first.shared_rows() is None
        goes_first = threading.Event()

        def second():
            goes_first.wait(60)
            return joined(home, "bob", server)()

        def note(event):
            if isinstance(event, Waiting) and event.waits_for == ("bob",):
                goes_first.set()

        together(
            lambda: join(ann, plain=True, server=server.address, on_event=note),
            second,
        )
    assert server.error is None


def test_a_party_that_had_finished_needs_no_server(finished):
    home, _, results, _ = finished
    events = []
    path = home / "ann" / "party.toml"
    again = join(path, plain=True, server="127.0.0.1:1", on_event=events.append)
    assert (again.model_hash, again.bundle) == (results["ann"].model_hash, home / "ann" / RUN / MODEL)
    assert of_kind(events, Remark)[-1].text.startswith("this party had finished before")


def test_the_same_run_with_the_same_group_key_trains_to_the_same_model(tmp_path):
    """The shared rows are put in an order that the group key decides."""
    hashes = []
    for home in (tmp_path / "here", tmp_path / "there"):
        write_run(home, group_key="ab" * 32)
        with serving(home / "run.toml") as server:
            found = together(*(joined(home, party, server) for party in ("ann", "bob")))
        hashes.append([each.model_hash for each in found])
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == 2


@pytest.mark.slow
def test_a_party_alone_names_the_one_it_waits_for(tmp_path):
    write_run(tmp_path)
    with serving(tmp_path / "run.toml") as server:
        with pytest.raises(PeerTimeout, match=r"waited 0\.5 s .*'bob' \(bob has not joined\)"):
            together(joined(tmp_path, "ann", server, wait=0.5))
        server.stop()


# Alignment alone


def test_aligned_parties_have_the_same_rows_in_one_order(tmp_path):
    write_run(tmp_path)
    with serving(tmp_path / "run.toml") as server:
        ann, bob = together(*(aligned(tmp_path, party, server) for party in ("ann", "bob")))
        assert ann.digest == bob.digest
        ids = [
            np.loadtxt(tmp_path / party / "data.csv", str, delimiter=",", skiprows=1)[:, 0] for party in ("ann", "bob")
        ]
        assert ids[0][ann.train].tolist() == ids[1][bob.train].tolist()
        assert ids[0][ann.held_out].tolist() == ids[1][bob.held_out].tolist()
        assert (tmp_path / "ann" / RUN / "state" / "blocks").is_dir(), "the features are in their order for `join`"
        events = []
        together(*(joined(tmp_path, party, server, events if party == "ann" else None) for party in ("ann", "bob")))
    assert of_kind(events, Remark)[0].text == "the rows were aligned before"
    assert of_kind(events, Aligned) == []


def test_an_alignment_that_is_there_is_used(finished):
    home = finished[0]
    path = home / "bob" / "party.toml"
    found = align(path, plain=True, server="127.0.0.1:1", on_event=ignore_events)
    assert found.digest == PartyFolder(path).shared_rows().digest


@pytest.mark.parametrize("command", [join, align])
def test_wrong_settings_are_found_before_anyone_is_asked(tmp_path, command):
    write_run(tmp_path)
    party = tmp_path / "bob" / "party.toml"
    with pytest.raises(SettingsError, match="leaves the port open"):
        command(party, plain=True, on_event=ignore_events)
    with pytest.raises(SettingsError, match=r"there is no .*key\.pem"):
        command(party, server="127.0.0.1:1", on_event=ignore_events)
    assert not (tmp_path / "bob" / RUN / "state" / "alignment").exists()


def test_rows_that_nobody_shares_end_the_alignment_of_all(tmp_path):
    write_run(tmp_path)
    data = tmp_path / "bob" / "data.csv"
    head, *lines = data.read_text().splitlines()
    data.write_text("\n".join([head, *(f"other-{line}" for line in lines)]) + "\n")
    with pytest.raises(AlignmentError, match="share no row"):  # noqa: SIM117 - the server waits for the end
        with serving(tmp_path / "run.toml") as server:
            together(*(aligned(tmp_path, party, server) for party in ("ann", "bob")))


def test_a_run_that_the_policy_took_for_a_smaller_one_ends_before_anything_leaves(tmp_path):
    """A person may let it go on: then the rules for runs without one do not hold."""
    write_run(tmp_path)
    party = tmp_path / "bob" / "party.toml"
    party.write_text(party.read_text() + '[policy]\naccept = "policy"\nmax_rows = 20\n')
    folder, log = PartyFolder(party), decision_log(tmp_path / "bob", None)
    accepted = Decision(folder.run.name, run_hash(folder.run).hex(), "ann", "accepted", "policy")
    log.append(accepted)
    with serving(tmp_path / "run.toml") as server:
        together(aligned(tmp_path, "ann", server), aligned(tmp_path, "bob", server))
        with pytest.raises(
            SettingsError, match=r"larger than was known then: it would train on 96 rows; policy\.max_rows"
        ):
            joined(tmp_path, "bob", server)()
        assert folder.ledger().accounts.read().runs == {}
        log.append(replace(accepted, by="person"))
        together(joined(tmp_path, "ann", server), joined(tmp_path, "bob", server))


def test_a_run_json_that_is_not_there_does_not_stand_for_another_run(tmp_path):
    write_run(tmp_path)
    with pytest.raises(SettingsError, match=r"there is no .*runs/frist/run\.json': no run has begun there"):
        join(tmp_path / "ann" / "party.toml", tmp_path / "ann" / "runs" / "frist" / "run.json", plain=True)
