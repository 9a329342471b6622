"""What a party must not deliver: refused with a reason, nothing changed, the others go on.

Messages come as bytes, as they would off the line; the sender is whom the line
belongs to. So nobody can write into another's column: no message has a place
for a name.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.messages import (
    PROTOCOL,
    Checkpointed,
    Finished,
    HeldOutPredictions,
    Push,
    Release,
    SealedMetrics,
    Total,
)
from fdml.protocol.wire import decode_from_party, decode_from_server, encode_from_party
from tests.protocol.codes import LARGEST_CODE
from tests.server.run_states import (
    EPOCHS,
    HELD_OUT,
    PARTIES,
    ROWS,
    STEPS,
    held_out,
    hello,
    labels,
    metrics,
    new_state,
    play,
    push,
    script_of,
)
from tests.storage.memory_disk import MemoryDisk

SCRIPTS = {staleness: script_of(staleness, seed=5) for staleness in (0, 2)}
JOINED, LABELLED = 3, 4
MIDDLE = len(SCRIPTS[0]) // 2


@dataclass(frozen=True)
class Bad:
    """Something refused: who sends it, in which bytes, after how many messages of the script, and why it is refused."""

    sender: str
    raw: bytes
    after: tuple[int, ...]
    refusal: Refusal


def sent(sender, message, after, refusal):
    return Bad(sender, encode_from_party(message), after, refusal)


def middle_of(staleness=0):
    """A server in the middle of a run, to see what comes next."""
    state = new_state(staleness=staleness)
    play(state, SCRIPTS[staleness][:MIDDLE])
    return state


def next_push(sender, **change):
    """The push that would be in turn in the middle of the run, with something wrong."""
    state = middle_of()
    step = state.coordinator.pushed(sender) + 1
    values = push(state, sender, step).release.values
    return Push(step + change.get("later", 0), Release(change["values"](values) if "values" in change else values))


def with_one(value):
    def change(values):
        values = values.copy()
        values[-1] = value
        return values

    return change


ANY = (0, JOINED, LABELLED, MIDDLE, len(SCRIPTS[0]))
TRAINING = (LABELLED, MIDDLE)
INVALID, GAP, CONFLICT = Refusal.INVALID, Refusal.GAP, Refusal.CONFLICT
NAN, INF = np.nan, np.inf
PUSH = encode_from_party(next_push("guard"))
SHORT_INTEGERS = pb.FromParty(
    push=pb.Push(step=next_push("guard").step, codes=next_push("guard").release.values.astype("<i4").tobytes())
).SerializeToString()


def bad_labels(**change):
    return sent("store", labels(**change), (JOINED, MIDDLE), INVALID)


def bad_metrics(size):
    return sent("store", SealedMetrics(1, b"s" * size), ANY, INVALID)


TABLE = {
    # the two sides mean different runs
    "settings hash differs": sent("guard", hello(9, run_hash=b"x" * 32), ANY, Refusal.MISMATCH),
    "alignment hash differs": sent("guard", hello(9, alignment_hash=b"x" * 32), ANY[1:], Refusal.MISMATCH),
    "other number of rows": sent("guard", hello(9, rows=ROWS + 1), ANY[1:], Refusal.MISMATCH),
    "other number of held-out rows": sent("guard", hello(9, held_out=0), ANY[1:], Refusal.MISMATCH),
    "no rows": sent("guard", hello(9, rows=0), ANY, INVALID),
    "newer protocol": sent("guard", hello(9, protocol=PROTOCOL + 1), ANY, Refusal.MISMATCH),
    "older protocol": sent("guard", hello(9, protocol=0), ANY, Refusal.MISMATCH),
    # who may deliver what
    "hello of a stranger": sent("spy", hello(9), ANY, Refusal.NOT_PERMITTED),
    "push of a stranger": Bad("spy", PUSH, ANY, Refusal.NOT_PERMITTED),
    "labels of a stranger": sent("spy", labels(), ANY, Refusal.NOT_PERMITTED),
    "finish of a stranger": sent("spy", Finished(b"m" * 32), ANY, Refusal.NOT_PERMITTED),
    "the party without a name": sent("", hello(9), ANY, Refusal.NOT_PERMITTED),
    "a name in other letters": sent("Store", hello(9), ANY, Refusal.NOT_PERMITTED),
    "labels of another party": sent("guard", labels(), ANY, Refusal.NOT_PERMITTED),
    "metrics of another party": sent("guard", metrics(1), ANY, Refusal.NOT_PERMITTED),
    # numbers that are none, or too large
    "metrics that are not sealed": bad_metrics(32),
    "metrics cut short": bad_metrics(59),
    "metrics with something behind them": bad_metrics(61),
    "a prediction out of range": sent(
        "guard", next_push("guard", values=with_one(LARGEST_CODE + 1)), (MIDDLE,), INVALID
    ),
    "a prediction out of range below": sent(
        "guard", next_push("guard", values=with_one(-LARGEST_CODE - 1)), (MIDDLE,), INVALID
    ),
    "the smallest integer": sent(
        "guard", next_push("guard", values=with_one(np.iinfo(np.int64).min)), (MIDDLE,), INVALID
    ),
    "NaN as if it were a prediction": sent(
        "guard", next_push("guard", values=with_one(np.array(NAN).view(np.int64))), (MIDDLE,), INVALID
    ),
    "a held-out prediction out of range": sent(
        "guard", HeldOutPredictions(EPOCHS, Release(np.full(HELD_OUT, LARGEST_CODE + 1))), TRAINING, INVALID
    ),
    # lengths and types
    "a push too short": sent("guard", next_push("guard", values=lambda values: values[:-1]), (MIDDLE,), INVALID),
    "a push too long": sent("guard", next_push("guard", values=lambda values: values.repeat(2)), (MIDDLE,), INVALID),
    "an empty push": sent("guard", next_push("guard", values=lambda values: values[:0]), (MIDDLE,), INVALID),
    "a push of half a number": Bad(
        "guard", pb.FromParty(push=pb.Push(step=1, codes=b"1234")).SerializeToString(), ANY, INVALID
    ),
    "a push of shorter integers": Bad("guard", SHORT_INTEGERS, (MIDDLE,), INVALID),
    "held-out predictions too short": sent(
        "guard", HeldOutPredictions(EPOCHS, Release(np.zeros(1, np.int64))), TRAINING, INVALID
    ),
    "labels too short": bad_labels(sealed=labels().sealed[:-1]),
    "labels too long": bad_labels(sealed=labels().sealed + b"x"),
    "labels that are empty": bad_labels(sealed=b""),
    "labels as wide as targets": bad_labels(task="regression"),
    "labels with weights of some rows": bad_labels(sealed=labels(weighted=True).sealed[:-8]),
    "labels of too many classes": bad_labels(classes=3),
    "a hash too short": sent("guard", hello(9, run_hash=b"short"), ANY, INVALID),
    "a model hash too long": sent("guard", Finished(b"m" * 33), ANY, INVALID),
    # bytes that are no message
    "nothing": Bad("guard", b"", ANY, INVALID),
    "trailing bytes": Bad("guard", PUSH + b"\0", ANY, INVALID),
    "trailing field": Bad("guard", PUSH + b"\x78\x01", ANY, INVALID),
    "a second message behind": Bad("guard", PUSH + encode_from_party(Checkpointed(0)), ANY, INVALID),
    "the same message twice": Bad("guard", PUSH + PUSH, ANY, INVALID),
    "an unknown kind of message": Bad("guard", b"\x7a\x02\x08\x01", ANY, INVALID),
    "an unknown field inside": Bad("guard", b"\x22\x04\x08\x03\x78\x01", ANY, INVALID),
    "a field of another type": Bad("guard", b"\x22\x02\x0a\x00", ANY, INVALID),
    "random bytes": Bad("guard", np.random.default_rng(0).bytes(100), ANY, INVALID),
    "many random bytes": Bad("guard", np.random.default_rng(1).bytes(100_000), ANY, INVALID),
    "a line of text": Bad("guard", b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", ANY, INVALID),
    "a truncated frame": Bad("guard", PUSH[:-1], ANY, INVALID),
    "half a frame": Bad("guard", PUSH[: len(PUSH) // 2], ANY, INVALID),
    "the first byte of a frame": Bad("guard", PUSH[:1], ANY, INVALID),
    "a frame that claims to be longer than it is": Bad("guard", b"\x1a\xff\xff\xff\xff\x07" + PUSH[2:], ANY, INVALID),
    # out of turn
    "old step with other bytes": sent("guard", Push(0, Release(np.zeros(4, np.int64))), (MIDDLE,), CONFLICT),
    "old step cut short": sent("guard", Push(0, Release(np.zeros(0, np.int64))), (MIDDLE,), CONFLICT),
    "other labels than before": sent("store", labels(sealed=bytes(len(labels().sealed))), (LABELLED, MIDDLE), CONFLICT),
    "weights that were not there before": sent("store", labels(weighted=True), (LABELLED, MIDDLE), CONFLICT),
    "other held-out predictions than before": sent(
        "guard", HeldOutPredictions(1, Release(held_out("guard", 1).release.values + 1)), (len(SCRIPTS[0]),), CONFLICT
    ),
    "another model than before": sent("guard", Finished(b"x" * 32), (len(SCRIPTS[0]),), CONFLICT),
    "step gap": sent("guard", next_push("guard", later=1), (MIDDLE,), GAP),
    "a step far ahead": sent("guard", next_push("guard", later=2**50), TRAINING, GAP),
    "the largest step": sent("guard", Push(2**64 - 1, Release(np.zeros(4, np.int64))), TRAINING, GAP),
    "past the end": sent("guard", Push(STEPS, Release(np.zeros(4, np.int64))), (len(SCRIPTS[0]),), GAP),
    "push before labels": sent("guard", Push(0, Release(np.zeros(4, np.int64))), (0, JOINED), GAP),
    "held-out predictions before labels": sent("guard", held_out("guard", 1), (0, JOINED), GAP),
    "metrics before labels": sent("store", metrics(1), (0, JOINED), GAP),
    "a checkpoint before labels": sent("guard", Checkpointed(0), (0, JOINED), GAP),
    "finished before labels": sent("guard", Finished(b"m" * 32), (0, JOINED), GAP),
    "labels before hello": sent("store", labels(), (0,), INVALID),
    "a checkpoint of what was never served": sent(
        "guard", Checkpointed(STEPS), (LABELLED, MIDDLE, len(SCRIPTS[0])), GAP
    ),
    "a checkpoint of the largest step": sent(
        "guard", Checkpointed(2**64 - 1), (LABELLED, MIDDLE, len(SCRIPTS[0])), GAP
    ),
    "epoch 0": sent("guard", HeldOutPredictions(0, held_out("guard", 1).release), TRAINING, GAP),
    "an epoch too many": sent("guard", HeldOutPredictions(EPOCHS + 1, held_out("guard", 1).release), TRAINING, GAP),
    "metrics of an epoch too many": sent("store", metrics(EPOCHS + 1), TRAINING, GAP),
    "the largest epoch": sent("store", SealedMetrics(2**32 - 1), TRAINING, GAP),
    "finished too early": sent("guard", Finished(b"m" * 32), TRAINING, GAP),
    # processes that were replaced
    "old incarnation": sent("guard", hello(1), (-1,), Refusal.FENCED),
    "incarnation 0": sent("guard", hello(0), ANY, Refusal.FENCED),
}
CASES = [(what, after) for what, bad in TABLE.items() for after in bad.after]


def totals(answers):
    """All totals that were sent, bit by bit, in order."""
    return [(to, raw) for answer in answers for to, raw in answer if isinstance(decode_from_server(raw), Total)]


@cache
def fault_free_run(*, rejoined):
    """The messages of a run in which nothing is refused, what the server answers, and its state at the end.

    `rejoined` is one in which a newer process of the guard joins in the middle.
    """
    script = SCRIPTS[0]
    if rejoined:
        script = [*script[:MIDDLE], ("guard", hello(2, done=STEPS)), *script[MIDDLE:]]
    whole = new_state()
    return script, play(whole, script), whole.fingerprint()


@pytest.mark.parametrize(("what", "after"), CASES)
def test_what_must_not_be_sent_is_refused_and_the_run_goes_on_as_if_it_had_not_been(what, after):
    bad, rejoined = TABLE[what], after < 0
    script, answers, at_the_end = fault_free_run(rejoined=rejoined)
    after = MIDDLE + 1 if rejoined else after
    disk = MemoryDisk()
    state = new_state(disk)
    play(state, script[:after])
    before, files = state.fingerprint(), dict(disk.files)

    with pytest.raises(MessageRefused) as refused:
        state.take(bad.sender, decode_from_party(bad.raw))
    state.commit()

    assert refused.value.refusal is bad.refusal
    assert len(str(refused.value)) > 20
    assert state.fingerprint() == before
    assert disk.files == files
    rest = play(state, script[after:])
    assert totals(rest) == totals(answers[after:])
    assert rest == answers[after:]
    assert state.fingerprint() == at_the_end
    assert state.finished
    assert new_state(disk).fingerprint() == at_the_end


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_run_in_which_all_of_it_is_sent_all_the_time_ends_the_same(staleness):
    """After every message of the run everything that can be refused is sent, by everyone."""
    whole, state = new_state(staleness=staleness), new_state(staleness=staleness)
    senders = [*PARTIES, "spy"]
    always = [bad.raw for bad in TABLE.values() if bad.refusal is INVALID and bad.after == ANY]
    always += [encode_from_party(hello(9, run_hash=b"x" * 32)), encode_from_party(hello(0))]
    assert len(always) > 15
    refused = 0
    for number, (sender, message) in enumerate(SCRIPTS[staleness]):
        for raw in always:
            with pytest.raises(MessageRefused):
                state.take(senders[(number + refused) % 4], decode_from_party(raw))
            refused += 1
        assert play(state, [(sender, message)]) == play(whole, [(sender, message)])
    assert state.fingerprint() == whole.fingerprint()


def test_nobody_can_write_into_anothers_column():
    """The same bytes, sent by two parties, are two parties' predictions."""
    state = new_state()
    play(state, SCRIPTS[0][:LABELLED])
    raw = encode_from_party(Push(0, Release(np.arange(state.coordinator.schedule.visit(0).size) + 1)))
    for sender in PARTIES:
        state.take(sender, decode_from_party(raw))
        pushed = [state.coordinator.pushed(party) for party in PARTIES]
        assert pushed == [0 if PARTIES.index(party) <= PARTIES.index(sender) else -1 for party in PARTIES]
    visit = state.coordinator.schedule.visit(0)
    for party in range(3):
        column = state.coordinator.matrix.column(party)
        assert column[visit.start : visit.stop].ravel().tolist() == list(range(1, visit.size + 1))
        assert not np.delete(column, np.s_[visit.start : visit.stop], axis=0).any()


def test_every_reason_there_is_occurs_but_those_of_the_line():
    """Certificates, sizes and which run is meant are the line's to check."""
    of_the_line = {Refusal.UNAUTHENTICATED, Refusal.TOO_LARGE, Refusal.NOT_STORED, Refusal.NO_RUN}
    assert {bad.refusal for bad in TABLE.values()} == set(Refusal) - of_the_line
