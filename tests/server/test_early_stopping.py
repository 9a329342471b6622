"""A run that held-out rows end, at the server: who may say so, who is told, and what a new start knows."""

import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.messages import SEALED_EPOCH_BYTES, BestEpoch, Checkpointed, HeldOutTotal, Stop, Stopped, Total
from fdml.server.alignment import AlignmentPhase
from fdml.server.bulletin import BulletinStore
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.status import StatusTracker
from fdml.settings.evaluation import EvaluationSettings
from tests.monitor.sample_events import Clock
from tests.server.run_states import (
    BLOCKS,
    PARTIES,
    RUN_HASH,
    definition_of,
    held_out,
    hello,
    labels,
    metrics,
    push,
)
from tests.storage.memory_disk import MemoryDisk

BEST = BestEpoch(b"e" * SEALED_EPOCH_BYTES)
END = BLOCKS + 3
"""One epoch, lookahead steps to know its loss, and what the label party has pushed by then."""


def definition(stop_after=1):
    plain = definition_of()
    evaluation = EvaluationSettings(stop_after=stop_after)
    return RunDefinition(plain.settings.model_copy(update={"evaluation": evaluation}), RUN_HASH)


def state_of(disk=None, **options):
    return RunState.open(definition(**options), MemoryDisk() if disk is None else disk)


def take(state, sender, *messages):
    replies = [reply for message in messages for reply in state.take(sender, message)]
    state.commit()
    return replies


def trained(state, steps=END):
    """All parties have joined, pushed so many steps, and sent their first held-out predictions."""
    for party in PARTIES:
        take(state, party, hello())
    take(state, "store", labels())
    for step in range(steps):
        for party in PARTIES:
            take(state, party, push(state, party, step))
    for party in PARTIES:
        take(state, party, held_out(party, 1))
    return state


def stopped(state):
    trained(state)
    take(state, "store", metrics(1), Stop(END, no_gain=True))
    return state


def test_the_label_party_ends_the_run_for_all_and_its_reason_is_told():
    state = trained(state_of())
    replies = take(state, "store", Stop(END, no_gain=True))
    assert [(reply.to, reply.message) for reply in replies] == [
        (party, Stopped("store", END, no_gain=True)) for party in PARTIES
    ]
    assert state.coordinator.end == END


@pytest.mark.parametrize(
    ("sender", "message", "stop_after", "refusal"),
    [
        ("browser", Stop(END, no_gain=True), 1, Refusal.NOT_PERMITTED),
        ("store", Stop(END, no_gain=True), None, Refusal.MISMATCH),
        ("browser", BEST, 1, Refusal.NOT_PERMITTED),
        ("store", BEST, None, Refusal.MISMATCH),
        ("store", BEST, 1, Refusal.GAP),
    ],
    ids=["another stops", "no stop_after", "another tells", "no best epoch", "before the end"],
)
def test_what_nobody_may_say_is_refused_and_changes_nothing(sender, message, stop_after, refusal):
    state = trained(state_of(stop_after=stop_after))
    before = state.fingerprint()
    with pytest.raises(MessageRefused) as refused:
        take(state, sender, message)
    assert refused.value.refusal is refusal
    assert state.fingerprint() == before


def test_the_best_epoch_is_told_to_all_others_once():
    state = stopped(state_of())
    assert [(reply.to, reply.message) for reply in take(state, "store", BEST)] == [("browser", BEST), ("guard", BEST)]
    assert take(state, "store", BEST) == []
    with pytest.raises(MessageRefused, match="another best epoch"):
        take(state, "store", BestEpoch(b"f" * SEALED_EPOCH_BYTES))


@pytest.mark.parametrize("rotate", [False, True])
def test_a_new_start_of_the_server_knows_the_end_and_the_best_epoch(rotate):
    disk = MemoryDisk()
    state = RunState.open(definition(), disk, rotate_bytes=1 if rotate else 10**9)
    stopped(state)
    take(state, "store", BEST)
    again = RunState.open(definition(), disk)
    assert again.best_epoch == BEST
    assert again.coordinator.stopped == Stopped("store", END, no_gain=True)
    told = [reply.message for reply in take(again, "browser", hello(2))]
    assert told[-2:] == [Stopped("store", END, no_gain=True), BEST]
    assert BEST not in [reply.message for reply in take(again, "store", hello(2))]


def test_a_label_party_that_starts_again_gets_the_totals_it_may_have_lost_the_figures_of():
    state = stopped(state_of())
    kinds = [type(reply.message) for reply in take(state, "store", hello(2, done=BLOCKS))]
    assert HeldOutTotal in kinds, "before the step at which its figures decide"
    assert Total in kinds
    kinds = [type(reply.message) for reply in take(state, "store", hello(3, done=BLOCKS + 1))]
    assert HeldOutTotal not in kinds
    take(state, "store", Checkpointed(BLOCKS + 1))
    kinds = [type(reply.message) for reply in take(state, "store", hello(4))]
    assert HeldOutTotal not in kinds, "once it has stored them the server forgets the total"


def test_whoever_waits_for_the_best_epoch_waits_for_the_label_party():
    state, settings, clock = stopped(state_of()), definition().settings, Clock()
    store = BulletinStore(settings.parties, settings.align, MemoryDisk())
    tracker = StatusTracker(state, AlignmentPhase(store, settings.parties, RUN_HASH, clock), settings, clock)
    assert tracker.is_waiting("browser", PARTIES)
    assert tracker.waits_for("browser") == ["store"]
    assert tracker.waits_for("store") == ["browser", "guard"]
    take(state, "store", BEST)
    assert not tracker.is_waiting("browser", PARTIES)
