import pytest

from fdml.protocol.alignment_calls import FetchCall
from fdml.protocol.messages import Finished
from fdml.server.alignment import AlignmentPhase
from fdml.server.bulletin import BulletinStore
from fdml.server.status import StatusTracker, WaitTimer
from tests.monitor.sample_events import Clock
from tests.server.run_states import (
    PARTIES,
    RUN_HASH,
    STEPS,
    definition_of,
    hello,
    labels,
    new_state,
    play,
    push,
    script_of,
)
from tests.storage.memory_disk import MemoryDisk


def tracker_of(state, clock=None, digest=None):
    return tracker_and_alignment(state, clock, digest)[0]


def tracker_and_alignment(state, clock=None, digest=None):
    settings, clock = definition_of().settings, clock or Clock()
    store = BulletinStore(settings.parties, settings.align, MemoryDisk())
    alignment = AlignmentPhase(store, settings.parties, RUN_HASH, clock, digest=digest)
    return StatusTracker(state, alignment, settings, clock), alignment


def training_state():
    """A run in which all have joined and the labels are known."""
    state = new_state()
    play(state, [(party, hello()) for party in PARTIES] + [("store", labels())])
    return state


def waits(tracker, connected=PARTIES):
    return {party: tracker.waits_for(party) for party in PARTIES if tracker.is_waiting(party, connected)}


def test_before_the_labels_whoever_has_joined_waits_for_the_label_party_and_all_who_are_missing():
    state = new_state()
    tracker, alignment = tracker_and_alignment(state)
    assert waits(tracker, connected=()) == {}
    state.take("guard", hello())
    assert waits(tracker, connected=("guard",)) == {"guard": ["store", "browser"]}
    state.take("store", hello())
    alignment.presence.joined("store")
    assert waits(tracker, connected=("guard", "store")) == {"guard": ["store", "browser"]}
    alignment.presence.joined("browser")
    assert waits(tracker, connected=("guard", "store")) == {"guard": ["store"]}


def test_who_has_pushed_waits_for_those_who_have_not():
    state = training_state()
    tracker = tracker_of(state)
    assert waits(tracker) == {}
    state.take("store", push(state, "store", 0))
    assert waits(tracker) == {"store": ["browser", "guard"]}


def test_a_label_party_that_has_trained_to_the_end_waits_for_those_who_have_not():
    state = new_state()
    play(state, [(party, message) for party, message in script_of() if not isinstance(message, Finished)])
    tracker = tracker_of(state)
    assert state.coordinator.served("store") == STEPS - 1
    assert waits(tracker) == {"store": ["browser", "guard"]}
    state.take("browser", Finished(b"b" * 32))
    assert waits(tracker) == {"store": ["guard"]}
    state.take("store", Finished(b"s" * 32))
    assert waits(tracker) == {}


def test_a_wait_is_counted_from_its_beginning_to_its_end():
    timer = WaitTimer()
    for waiting, now in ((False, 1.0), (True, 2.0), (True, 3.0), (False, 4.5), (True, 5.0)):
        timer.note(waiting, now)
    assert timer.total == pytest.approx(2.5)
    assert timer.since == 5.0
    assert timer.present(7.0) == 2.0


def test_a_report_names_all_parties_also_before_anyone_has_come():
    report = tracker_of(new_state()).report(())
    assert [party.name for party in report.parties] == list(PARTIES)
    assert {(party.pushed, party.served, party.connected) for party in report.parties} == {(-1, -1, False)}
    assert report.steps == 0
    assert report.history == ()
    assert report.refused == {}


def test_a_wait_that_goes_on_is_reported_with_its_length_and_whom_it_is_for():
    state, clock = training_state(), Clock()
    tracker = tracker_of(state, clock=clock)
    state.take("store", push(state, "store", 0))
    tracker.note_waits(PARTIES)
    clock.now += 2.5
    store, browser, _ = tracker.report(PARTIES).parties
    assert (store.waits_for, store.waiting_seconds, store.waited_seconds) == (("browser", "guard"), 2.5, 2.5)
    assert store.state == "waiting"
    assert (browser.waits_for, browser.waiting_seconds, browser.waited_seconds) == ((), 0.0, 0.0)
    assert browser.state == "training"


def test_a_wait_that_is_over_counts_on_among_all_waits():
    state, clock = training_state(), Clock()
    tracker = tracker_of(state, clock=clock)
    state.take("store", push(state, "store", 0))
    tracker.note_waits(PARTIES)
    clock.now += 2.5
    for party in ("browser", "guard"):
        state.take(party, push(state, party, 0))
    tracker.note_waits(PARTIES)
    clock.now += 10.0
    store = tracker.report(PARTIES).parties[0]
    assert (store.waits_for, store.waiting_seconds, store.waited_seconds) == ((), 0.0, 2.5)


def test_a_report_has_steps_starts_and_the_end_of_every_party():
    state = new_state()
    play(state, script_of())
    report = tracker_of(state).report(())
    assert report.steps == STEPS
    assert {(party.pushed, party.served) for party in report.parties} == {(STEPS - 1, STEPS - 1)}
    assert {(party.incarnation, party.state) for party in report.parties} == {(1, "finished")}
    assert report.history == tuple(state.history.values())
    assert report.history


def test_bytes_and_refusals_are_counted_by_party_and_reason():
    tracker = tracker_of(training_state())
    tracker.bytes_in["store"] += 70
    tracker.bytes_out["guard"] += 30
    tracker.refused["gap"] += 2
    report = tracker.report(PARTIES)
    assert [(party.bytes_in, party.bytes_out) for party in report.parties] == [(70, 0), (0, 0), (0, 30)]
    assert report.refused == {"gap": 2}
    tracker.refused["gap"] += 1
    assert report.refused == {"gap": 2}, "a report is of one moment"


def test_a_party_without_a_stream_is_gone():
    store, browser, guard = tracker_of(training_state()).report(("browser",)).parties
    assert (store.state, browser.state, guard.state) == ("gone", "training", "gone")


def test_a_party_that_aligns_is_connected_and_waits_for_those_who_have_not_posted():
    clock = Clock()
    tracker, alignment = tracker_and_alignment(new_state(), clock)
    call = FetchCall("key_offer", "guard", "", RUN_HASH)
    alignment.fetch("store", call)
    alignment.waiting("store", call)
    tracker.note_waits(())
    clock.now += 3.0
    store, browser, guard = tracker.report(()).parties
    assert (store.state, store.connected, store.waits_for) == ("aligning", True, ("browser", "guard"))
    assert store.waiting_seconds == 3.0
    assert (browser.state, guard.state) == ("not here yet", "not here yet")
    clock.now += 59.0
    assert tracker.report(()).parties[0].state == "gone for 62 s"


def test_once_the_rows_are_aligned_a_party_that_has_not_joined_is_reported_so():
    report = tracker_of(new_state(), digest=b"d" * 32).report(())
    assert {party.state for party in report.parties} == {"aligned, not joined yet"}


def test_traffic_is_given_for_every_party():
    tracker = tracker_of(new_state())
    tracker.bytes_in["store"] += 7
    tracker.bytes_out["store"] += 9
    assert tracker.traffic == {"store": (7, 9), "browser": (0, 0), "guard": (0, 0)}


def test_progress_is_told_once_for_every_change():
    state = training_state()
    tracker = tracker_of(state)
    first = tracker.progress(PARTIES)
    assert [each.party for each in first] == list(PARTIES)
    assert {(each.step, each.steps, each.state) for each in first} == {(0, STEPS, "training")}
    assert tracker.progress(PARTIES) == []
    state.take("store", push(state, "store", 0))
    tracker.note_waits(PARTIES)
    waiting = next(each for each in tracker.progress(PARTIES) if each.party == "store")
    assert (waiting.party, waiting.state) == ("store", "waiting")
    assert waiting.waits_for == tuple(name for name in PARTIES if name != "store")


def test_progress_of_a_party_that_is_gone_is_told_once():
    clock = Clock()
    tracker, alignment = tracker_and_alignment(training_state(), clock)
    alignment.presence.joined("store")
    alignment.presence.left("store")
    tracker.progress(())
    clock.now += 30.0
    assert tracker.progress(()) == [], "how long it is gone changes every second"
