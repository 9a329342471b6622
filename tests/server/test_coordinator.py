import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.messages import Checkpointed, Gradient, Push, Release, Stop, Stopped, Total
from fdml.protocol.schedule import schedule_for
from fdml.server.coordinator import Coordinator
from tests.examples import examples
from tests.protocol.codes import LARGEST_CODE

PARTIES = ("store", "browser", "guard")
SLOW = examples(60)


def schedule_of(*, blocks=4, epochs=3, short=True):
    """Blocks of two batches of two rows; the last block may be short."""
    return schedule_for(4 * blocks - (1 if short else 0), 2, 2, 1, epochs, 7)


def codes(party, step, schedule, outputs=1):
    """Values no other push of the run has, large enough that an overflow or a rounding would show."""
    random = np.random.default_rng([party, step])
    return random.integers(-LARGEST_CODE, LARGEST_CODE, (schedule.visit(step).size, outputs), endpoint=True)


def push(coordinator, party, step, schedule, outputs=1):
    number = PARTIES.index(party)
    return coordinator.handle(party, Push(step, Release(codes(number, step, schedule, outputs))))


def sum_of(step, schedule, parties, outputs=1):
    return sum(codes(party, step, schedule, outputs) for party in range(parties))


def served(replies):
    return [(reply.to, reply.message.step) for reply in replies]


class PlainCoordinator:
    """A slow twin that forgets nothing: the rules of the design, one line each."""

    def __init__(self, parties, schedule, staleness):
        self.parties, self.schedule, self.staleness = parties, schedule, staleness
        self.history = [{} for _ in parties]
        self.next = [0] * len(parties)

    def handle(self, party, step, values):
        self.history[party][step] = values
        slowest = min(max(pushed, default=-1) for pushed in self.history)
        replies = []
        for number, name in enumerate(self.parties):
            while self.next[number] in self.history[number] and self.next[number] - slowest <= self.staleness:
                replies.append((name, self.total(self.next[number])))
                self.next[number] += 1
        return replies

    def total(self, step):
        block = self.schedule.visit(step).block
        values, pushed_at = 0, []
        for pushed in self.history:
            made = max((at for at in pushed if at <= step and self.schedule.visit(at).block == block), default=-1)
            values = values + pushed.get(made, 0)
            pushed_at.append(made)
        return Total(step, values, tuple(pushed_at))


class Crowd:
    """Parties that push as the loop does: step t + 1 + lookahead once they have received step t."""

    def __init__(self, schedule, lookaheads):
        self.schedule, self.lookaheads = schedule, lookaheads
        self.pushed = [0] * len(lookaheads)
        self.received = [[] for _ in lookaheads]

    def ready(self):
        """Which parties have something to push."""
        return [
            party
            for party, lookahead in enumerate(self.lookaheads)
            if self.pushed[party] < min(len(self.received[party]) + 1 + lookahead, self.schedule.steps)
        ]


@st.composite
def crowds(draw):
    parties = draw(st.integers(1, 3))
    schedule = schedule_of(blocks=draw(st.integers(1, 4)), epochs=draw(st.integers(1, 4)), short=draw(st.booleans()))
    return Crowd(schedule, draw(st.lists(st.integers(0, 3), min_size=parties, max_size=parties)))


def run_in_any_order(coordinator, crowd, data, outputs=1):
    """Yields every push with what came back, until all parties are done."""
    while ready := crowd.ready():
        party = data.draw(st.sampled_from(ready))
        step = crowd.pushed[party]
        replies = push(coordinator, PARTIES[party], step, crowd.schedule, outputs)
        crowd.pushed[party] += 1
        for reply in replies:
            crowd.received[PARTIES.index(reply.to)].append(reply.message)
        yield party, step, replies


@SLOW
@given(crowds(), st.integers(1, 3), st.data())
def test_at_staleness_0_a_total_is_the_sum_of_that_steps_pushes_whatever_the_order(crowd, outputs, data):
    parties, schedule = len(crowd.lookaheads), crowd.schedule
    coordinator = Coordinator(PARTIES[:parties], schedule, outputs, 0)
    for _ in run_in_any_order(coordinator, crowd, data, outputs):
        pass
    for totals in crowd.received:
        assert [total.step for total in totals] == list(range(schedule.steps))
        for total in totals:
            np.testing.assert_array_equal(total.values, sum_of(total.step, schedule, parties, outputs))
            assert total.values.dtype == np.int64
            assert total.pushed_at == (total.step,) * parties
            assert total.lag == 0


@SLOW
@given(crowds(), st.integers(0, 5), st.data())
def test_at_any_staleness_the_totals_are_those_of_a_twin_that_forgets_nothing(crowd, staleness, data):
    parties = PARTIES[: len(crowd.lookaheads)]
    coordinator = Coordinator(parties, crowd.schedule, 1, staleness)
    twin = PlainCoordinator(parties, crowd.schedule, staleness)
    for party, step, replies in run_in_any_order(coordinator, crowd, data):
        expected = twin.handle(party, step, codes(party, step, crowd.schedule))
        assert served(replies) == [(name, total.step) for name, total in expected]
        for reply, (_, total) in zip(replies, expected, strict=True):
            np.testing.assert_array_equal(reply.message.values, total.values)
            assert reply.message.pushed_at == total.pushed_at
    assert crowd.pushed == [crowd.schedule.steps] * len(parties)


@SLOW
@given(crowds(), st.integers(0, 5), st.data())
def test_the_matrix_holds_the_last_pushes_at_the_end(crowd, staleness, data):
    parties, schedule = PARTIES[: len(crowd.lookaheads)], crowd.schedule
    coordinator = Coordinator(parties, schedule, 1, staleness)
    for _ in run_in_any_order(coordinator, crowd, data):
        pass
    for party in range(len(parties)):
        expected = np.zeros((schedule.rows, 1), np.int64)
        for step in range(schedule.steps):
            visit = schedule.visit(step)
            expected[visit.start : visit.stop] = codes(party, step, schedule)
        np.testing.assert_array_equal(coordinator.matrix.column(party), expected)


def test_a_party_too_far_ahead_waits_for_the_slowest():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    assert push(coordinator, "store", 0, schedule) == []
    assert push(coordinator, "store", 1, schedule) == []
    assert push(coordinator, "browser", 0, schedule) == []
    assert served(push(coordinator, "guard", 0, schedule)) == [("store", 0), ("browser", 0), ("guard", 0)]
    assert push(coordinator, "guard", 1, schedule) == []
    assert served(push(coordinator, "browser", 1, schedule)) == [("store", 1), ("browser", 1), ("guard", 1)]


@pytest.mark.parametrize("staleness", [0, 1, 2, 5])
def test_a_party_is_served_exactly_as_far_ahead_as_the_staleness_allows(staleness):
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES[:2], schedule, 1, staleness)
    push(coordinator, "browser", 0, schedule)
    got = [reply for step in range(schedule.steps) for reply in push(coordinator, "store", step, schedule)]
    ahead = [reply.message.step for reply in got if reply.to == "store"]
    assert ahead == list(range(staleness + 1))
    more = push(coordinator, "browser", 1, schedule)
    assert ("store", staleness + 1) in served(more)
    assert ("store", staleness + 2) not in served(more)


def test_a_party_behind_reads_what_was_pushed_for_its_own_step():
    schedule = schedule_of(blocks=1, epochs=4)
    coordinator = Coordinator(PARTIES[:2], schedule, 1, 3)
    for step in range(3):
        push(coordinator, "store", step, schedule)
    for step in range(3):
        (reply,) = (reply for reply in push(coordinator, "browser", step, schedule) if reply.to == "browser")
        np.testing.assert_array_equal(reply.message.values, sum_of(step, schedule, 2))
        assert reply.message.pushed_at == (step, step)


def test_a_part_that_never_came_counts_as_zero_from_before_the_first_step():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES[:2], schedule, 1, 2)
    (reply,) = push(coordinator, "store", 0, schedule)
    np.testing.assert_array_equal(reply.message.values, codes(0, 0, schedule))
    assert reply.message.pushed_at == (0, -1)
    assert reply.message.lag == 1


def test_the_lag_of_a_party_ahead_is_an_epoch_as_in_the_papers_algorithm():
    """At staleness 1 the slow party's part of a new epoch's block is from the epoch before."""
    schedule = schedule_of(blocks=4, epochs=2)
    coordinator = Coordinator(PARTIES[:2], schedule, 1, 1)
    for step in range(4):
        push(coordinator, "browser", step, schedule)
        push(coordinator, "store", step, schedule)
    (reply,) = push(coordinator, "store", 4, schedule)
    block = schedule.visit(4).block
    before = next(step for step in range(4) if schedule.visit(step).block == block)
    assert reply.message.pushed_at == (4, before)
    assert reply.message.lag == 4 - before
    np.testing.assert_array_equal(reply.message.values, codes(0, 4, schedule) + codes(1, before, schedule))


def test_who_is_waited_for_is_known_by_name():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    assert coordinator.waits_for("store") == ["store"]
    push(coordinator, "store", 0, schedule)
    assert coordinator.waits_for("store") == ["browser", "guard"]
    push(coordinator, "guard", 0, schedule)
    assert coordinator.waits_for("store") == ["browser"]
    assert coordinator.waits_for("browser") == ["browser"]
    push(coordinator, "browser", 0, schedule)
    assert coordinator.waits_for("store") == ["store"]


def test_who_is_waited_for_depends_on_the_staleness():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 1)
    push(coordinator, "guard", 0, schedule)
    for step in range(3):
        push(coordinator, "store", step, schedule)
    assert coordinator.waits_for("store") == ["browser"]


BLOCK = (4, 1)
NOTHING = np.zeros(BLOCK, np.int64)
REFUSED = {
    "an unknown party": (
        "spy",
        Push(1, Release(NOTHING)),
        Refusal.NOT_PERMITTED,
        r"'spy' is not a party of this run; it has store, browser",
    ),
    "a step left out": (
        "store",
        Push(2, Release(NOTHING)),
        Refusal.GAP,
        r"party 'store' pushed step 2; its next is 1 of 12",
    ),
    "a step twice with other values": (
        "store",
        Push(0, Release(NOTHING)),
        Refusal.CONFLICT,
        r"party 'store' pushed step 0 again with other values",
    ),
    "a step twice with fewer values": (
        "store",
        Push(0, Release(NOTHING[:0])),
        Refusal.CONFLICT,
        r"party 'store' pushed step 0 again with other values",
    ),
    "a step below 0": (
        "store",
        Push(-1, Release(NOTHING)),
        Refusal.CONFLICT,
        r"party 'store' pushed step -1 again with other values",
    ),
    "rows missing": (
        "store",
        Push(1, Release(np.zeros((3, 1), np.int64))),
        Refusal.INVALID,
        r"int64 of shape \(3, 1\) for step 1; .* int64 of shape \(4, 1\)",
    ),
    "outputs too many": (
        "store",
        Push(1, Release(np.zeros((4, 2), np.int64))),
        Refusal.INVALID,
        r"int64 of shape \(4, 2\) for step 1",
    ),
    "a flat array too long": (
        "store",
        Push(1, Release(np.zeros(5, np.int64))),
        Refusal.INVALID,
        r"int64 of shape \(5,\) for step 1",
    ),
    "rows and outputs swapped": (
        "store",
        Push(1, Release(np.zeros((1, 4), np.int64))),
        Refusal.INVALID,
        r"int64 of shape \(1, 4\) for step 1",
    ),
    "nothing": (
        "store",
        Push(1, Release(np.zeros(0, np.int64))),
        Refusal.INVALID,
        r"int64 of shape \(0,\) for step 1",
    ),
    "floats": ("store", Push(1, Release(np.zeros(BLOCK))), Refusal.INVALID, r"float64 of shape \(4, 1\) for step 1"),
    "other integers": (
        "store",
        Push(1, Release(np.zeros(BLOCK, np.uint64))),
        Refusal.INVALID,
        r"uint64 of shape \(4, 1\) for step 1",
    ),
    "too large": (
        "store",
        Push(1, Release(np.full(BLOCK, 2 * LARGEST_CODE))),
        Refusal.INVALID,
        r"for step 1 a prediction of size 2\.09715e\+06; at most 1\.04858e\+06",
    ),
    "too small": (
        "store",
        Push(1, Release(np.full(BLOCK, -LARGEST_CODE - 1))),
        Refusal.INVALID,
        r"for step 1 a prediction of size 1\.04858e\+06",
    ),
    "the smallest integer": (
        "store",
        Push(1, Release(np.full(BLOCK, np.iinfo(np.int64).min))),
        Refusal.INVALID,
        r"for step 1 a prediction of size 2\.14748e\+09",
    ),
    "one value too large among good ones": (
        "store",
        Push(1, Release(np.array([[0], [0], [0], [LARGEST_CODE + 1]]))),
        Refusal.INVALID,
        r"for step 1 a prediction of size 1\.04858e\+06",
    ),
    "a checkpoint before it was served": (
        "store",
        Checkpointed(1),
        Refusal.GAP,
        r"party 'store' has a checkpoint after step 1, but was served only 0",
    ),
}


def insides(coordinator):
    return copy.deepcopy(coordinator.state())


@pytest.mark.parametrize("what", REFUSED)
def test_what_breaks_the_protocol_is_refused_by_name_and_the_others_go_on(what):
    sender, bad, refusal, text = REFUSED[what]
    schedule = schedule_of(short=False)
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    for party in PARTIES:
        push(coordinator, party, 0, schedule)
    push(coordinator, "browser", 1, schedule)
    before = insides(coordinator)
    with pytest.raises(MessageRefused, match=text) as refused:
        coordinator.handle(sender, bad)
    assert refused.value.refusal is refusal
    np.testing.assert_equal(insides(coordinator), before)
    push(coordinator, "guard", 1, schedule)
    replies = push(coordinator, "store", 1, schedule)
    assert served(replies) == [("store", 1), ("browser", 1), ("guard", 1)]
    np.testing.assert_array_equal(replies[0].message.values, sum_of(1, schedule, 3))


def test_the_largest_predictions_are_taken():
    coordinator = Coordinator(PARTIES[:1], schedule_of(short=False), 1, 0)
    values = np.array([[LARGEST_CODE], [-LARGEST_CODE], [0], [1]])
    (reply,) = coordinator.handle("store", Push(0, Release(values)))
    np.testing.assert_array_equal(reply.message.values, values)


def test_a_step_past_the_last_is_refused():
    schedule = schedule_of(blocks=1, epochs=2, short=False)
    coordinator = Coordinator(PARTIES[:1], schedule, 1, 0)
    for step in range(2):
        push(coordinator, "store", step, schedule)
    with pytest.raises(MessageRefused, match="party 'store' pushed step 2; its next is 2 of 2") as refused:
        coordinator.handle("store", Push(2, Release(NOTHING)))
    assert refused.value.refusal is Refusal.GAP


def test_a_total_does_not_change_when_later_pushes_come():
    schedule = schedule_of(blocks=1, epochs=3)
    coordinator = Coordinator(PARTIES[:1], schedule, 1, 0)
    (first,) = push(coordinator, "store", 0, schedule)
    copied = first.message.values.copy()
    push(coordinator, "store", 1, schedule)
    np.testing.assert_array_equal(first.message.values, copied)


def test_what_all_have_read_is_not_stored_twice():
    """Memory stays bounded by how far the parties are apart."""
    schedule = schedule_of(epochs=20)
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    for step in range(schedule.steps):
        for party in PARTIES:
            push(coordinator, party, step, schedule)
            assert sum(len(recent) for recent in coordinator._newer_than_matrix) <= len(PARTIES)


def test_waiting_of_an_unknown_party_is_refused():
    with pytest.raises(MessageRefused, match="'spy' is not a party"):
        Coordinator(PARTIES, schedule_of(), 1, 0).waits_for("spy")


def test_a_flat_array_off_the_wire_counts_row_by_row():
    schedule = schedule_of(short=False)
    coordinator = Coordinator(PARTIES[:1], schedule, 3, 0)
    values = codes(0, 0, schedule, 3)
    (reply,) = coordinator.handle("store", Push(0, Release(values.reshape(-1))))
    np.testing.assert_array_equal(reply.message.values, values)
    assert push(coordinator, "store", 0, schedule, 3) == []


@SLOW
@given(crowds(), st.integers(0, 5), st.data())
def test_a_push_repeated_at_any_moment_changes_nothing(crowd, staleness, data):
    parties = PARTIES[: len(crowd.lookaheads)]
    coordinator = Coordinator(parties, crowd.schedule, 1, staleness)
    for _ in run_in_any_order(coordinator, crowd, data):
        party = data.draw(st.integers(0, len(parties) - 1))
        if crowd.pushed[party]:
            step = data.draw(st.integers(0, crowd.pushed[party] - 1))
            before = insides(coordinator)
            assert push(coordinator, parties[party], step, crowd.schedule) == []
            np.testing.assert_equal(insides(coordinator), before)


@SLOW
@given(crowds(), st.integers(0, 5), st.data())
def test_whatever_was_served_is_given_again_until_a_checkpoint(crowd, staleness, data):
    parties = PARTIES[: len(crowd.lookaheads)]
    coordinator = Coordinator(parties, crowd.schedule, 1, staleness)
    saved = [-1] * len(parties)
    for _ in run_in_any_order(coordinator, crowd, data):
        party = data.draw(st.integers(0, len(parties) - 1))
        received = crowd.received[party]
        if received and data.draw(st.booleans()):
            step = data.draw(st.integers(0, len(received) - 1))
            assert coordinator.handle(parties[party], Checkpointed(step)) == []
            saved[party] = max(saved[party], step)
        done = data.draw(st.integers(-1, len(received)))
        again = coordinator.resend(parties[party], done)
        assert [reply.to for reply in again] == [parties[party]] * len(again)
        expected = received[1 + max(done, saved[party]) :]
        assert [reply.message.step for reply in again] == [total.step for total in expected]
        for reply, total in zip(again, expected, strict=True):
            np.testing.assert_array_equal(reply.message.values, total.values)
            assert reply.message.pushed_at == total.pushed_at


@SLOW
@given(crowds(), st.integers(0, 5), st.data())
def test_a_restored_coordinator_goes_on_as_the_one_that_gave_the_state(crowd, staleness, data):
    parties = PARTIES[: len(crowd.lookaheads)]
    coordinator = Coordinator(parties, crowd.schedule, 1, staleness)
    stop = data.draw(st.integers(0, crowd.schedule.steps * len(parties) - 1))
    running = run_in_any_order(coordinator, crowd, data)
    for _ in range(stop):
        next(running)
    running.close()
    other = Coordinator(parties, crowd.schedule, 1, staleness)
    other.restore(copy.deepcopy(coordinator.state()))
    np.testing.assert_equal(other.state(), coordinator.state())
    for party, step, replies in run_in_any_order(coordinator, crowd, data):
        twins = push(other, parties[party], step, crowd.schedule)
        assert served(twins) == served(replies)
        for twin, reply in zip(twins, replies, strict=True):
            np.testing.assert_array_equal(twin.message.values, reply.message.values)
            assert twin.message.pushed_at == reply.message.pushed_at
    np.testing.assert_equal(other.state(), coordinator.state())


def test_what_is_before_a_checkpoint_is_forgotten():
    """With parties that have checkpoints, memory is bounded by what came after them."""
    schedule = schedule_of(epochs=20)
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    for step in range(schedule.steps):
        for party in PARTIES:
            push(coordinator, party, step, schedule)
        for party in PARTIES:
            coordinator.handle(party, Checkpointed(step))
        assert not [key for key in coordinator.state() if "/" in key]


def test_a_checkpoint_of_one_party_takes_nothing_from_the_others():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    for party in PARTIES:
        push(coordinator, party, 0, schedule)
    coordinator.handle("store", Checkpointed(0))
    assert coordinator.resend("store", -1) == []
    (again,) = coordinator.resend("browser", -1)
    np.testing.assert_array_equal(again.message.values, sum_of(0, schedule, 3))


def test_keeping_an_older_step_again_changes_nothing():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES[:1], schedule, 1, 0)
    for step in range(3):
        push(coordinator, "store", step, schedule)
    coordinator.handle("store", Checkpointed(1))
    before = insides(coordinator)
    coordinator.handle("store", Checkpointed(0))
    np.testing.assert_equal(insides(coordinator), before)


def test_where_everyone_is_can_be_asked():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    assert (coordinator.pushed("store"), coordinator.served("store")) == (-1, -1)
    for party in PARTIES:
        push(coordinator, party, 0, schedule)
    push(coordinator, "store", 1, schedule)
    assert (coordinator.pushed("store"), coordinator.served("store")) == (1, 0)
    assert (coordinator.pushed("guard"), coordinator.served("guard")) == (0, 0)


# Private labels: only the gradient_party is served totals, the others what it makes of them.

GRADIENT_PARTY = "browser"


def with_private_labels(staleness=0, **options):
    schedule = schedule_of(short=False)
    return Coordinator(PARTIES, schedule, 1, staleness, gradient_party=GRADIENT_PARTY, **options), schedule


def gradient(step, schedule, mask_id=5, salt=0):
    values = np.random.default_rng([9, step, salt]).integers(-(2**62), 2**62, (schedule.visit(step).size, 1))
    return Gradient(step, Release(values, mask_id))


def kinds(replies):
    return [(reply.to, type(reply.message).__name__, reply.message.step) for reply in replies]


def all_push(coordinator, step, schedule):
    return [reply for party in PARTIES for reply in push(coordinator, party, step, schedule)]


def test_over_private_labels_only_the_label_party_is_served_totals_and_the_others_its_gradients():
    coordinator, schedule = with_private_labels()
    for step in range(3):
        assert kinds(all_push(coordinator, step, schedule)) == [(GRADIENT_PARTY, "Total", step)]
        replies = coordinator.handle(GRADIENT_PARTY, gradient(step, schedule))
        assert kinds(replies) == [("store", "Gradient", step), ("guard", "Gradient", step)]
        for reply in replies:
            np.testing.assert_array_equal(reply.message.release.values, gradient(step, schedule).release.values)
            assert reply.message.release.mask_id == 5
    assert coordinator.last_gradient == 2


def test_a_gradient_waits_for_the_push_of_who_is_to_learn_from_it():
    """At staleness 1 the label party is served before a slow party has pushed; that party gets the gradient when it has."""
    coordinator, schedule = with_private_labels(staleness=1)
    assert kinds(push(coordinator, GRADIENT_PARTY, 0, schedule)) == [(GRADIENT_PARTY, "Total", 0)]
    assert coordinator.handle(GRADIENT_PARTY, gradient(0, schedule)) == []
    assert kinds(push(coordinator, "store", 0, schedule)) == [("store", "Gradient", 0)]
    assert kinds(push(coordinator, "guard", 0, schedule)) == [("guard", "Gradient", 0)]


def test_a_push_waits_for_its_gradient():
    coordinator, schedule = with_private_labels()
    for party in PARTIES:
        push(coordinator, party, 0, schedule)
        push(coordinator, party, 1, schedule)
    assert coordinator.served(GRADIENT_PARTY) == 1
    assert coordinator.served("store") == -1
    assert kinds(coordinator.handle(GRADIENT_PARTY, gradient(0, schedule))) == [
        ("store", "Gradient", 0),
        ("guard", "Gradient", 0),
    ]
    assert kinds(coordinator.handle(GRADIENT_PARTY, gradient(1, schedule))) == [
        ("store", "Gradient", 1),
        ("guard", "Gradient", 1),
    ]


BAD_GRADIENTS = {
    "from a party that has no labels": (
        "store",
        lambda schedule: gradient(1, schedule),
        Refusal.NOT_PERMITTED,
        "party 'store' sent a gradient; only a label party with private labels may",
    ),
    "a step left out": (
        GRADIENT_PARTY,
        lambda schedule: gradient(2, schedule),
        Refusal.GAP,
        "party 'browser' sent the gradient of step 2; its next is 1, and it was served 1",
    ),
    "without a mask": (
        GRADIENT_PARTY,
        lambda schedule: gradient(1, schedule, mask_id=0),
        Refusal.MISMATCH,
        "party 'browser' sent a gradient without a mask; install the same fdml",
    ),
    "of other rows": (
        GRADIENT_PARTY,
        lambda schedule: Gradient(1, Release(np.zeros((3, 1), np.int64), 5)),
        Refusal.INVALID,
        r"int64 of shape \(3, 1\) for step 1; the block takes int64 of shape \(4, 1\)",
    ),
    "of floats": (
        GRADIENT_PARTY,
        lambda schedule: Gradient(1, Release(np.zeros((4, 1)), 5)),
        Refusal.INVALID,
        r"float64 of shape \(4, 1\) for step 1",
    ),
    "again with other values": (
        GRADIENT_PARTY,
        lambda schedule: gradient(0, schedule, salt=1),
        Refusal.CONFLICT,
        "party 'browser' sent the gradient of step 0 again with other values; a release is never changed",
    ),
}


@pytest.mark.parametrize("what", BAD_GRADIENTS)
def test_a_bad_gradient_is_refused_by_name_and_changes_nothing(what):
    sender, bad, refusal, text = BAD_GRADIENTS[what]
    coordinator, schedule = with_private_labels()
    all_push(coordinator, 0, schedule)
    coordinator.handle(GRADIENT_PARTY, gradient(0, schedule))
    all_push(coordinator, 1, schedule)
    before = insides(coordinator)
    with pytest.raises(MessageRefused, match=text) as refused:
        coordinator.handle(sender, bad(schedule))
    assert refused.value.refusal is refusal
    np.testing.assert_equal(insides(coordinator), before)
    assert len(coordinator.handle(GRADIENT_PARTY, gradient(1, schedule))) == 2


def test_a_gradient_of_a_total_that_was_not_served_is_refused():
    coordinator, schedule = with_private_labels()
    push(coordinator, GRADIENT_PARTY, 0, schedule)
    with pytest.raises(MessageRefused, match="its next is 0, and it was served -1") as refused:
        coordinator.handle(GRADIENT_PARTY, gradient(0, schedule))
    assert refused.value.refusal is Refusal.GAP


@pytest.mark.parametrize("sender", PARTIES)
def test_where_labels_are_shared_nobody_sends_gradients(sender):
    schedule = schedule_of(short=False)
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    all_push(coordinator, 0, schedule)
    with pytest.raises(MessageRefused, match="only a label party with private labels may") as refused:
        coordinator.handle(sender, gradient(0, schedule))
    assert refused.value.refusal is Refusal.NOT_PERMITTED


def test_a_gradient_that_comes_again_is_taken_once_and_the_first_one_stays():
    """After a restart the gradient_party makes it again under another mask; nobody can tell whether it is the same."""
    coordinator, schedule = with_private_labels()
    all_push(coordinator, 0, schedule)
    coordinator.handle(GRADIENT_PARTY, gradient(0, schedule))
    before = insides(coordinator)
    assert coordinator.handle(GRADIENT_PARTY, gradient(0, schedule)) == []
    assert coordinator.handle(GRADIENT_PARTY, gradient(0, schedule, mask_id=6, salt=1)) == []
    np.testing.assert_equal(insides(coordinator), before)
    (again,) = coordinator.resend("store", -1)
    np.testing.assert_array_equal(again.message.release.values, gradient(0, schedule).release.values)
    coordinator.handle(GRADIENT_PARTY, Checkpointed(0))
    assert coordinator.handle(GRADIENT_PARTY, gradient(0, schedule)) == [], "its acknowledgement may have been lost"
    assert coordinator.handle(GRADIENT_PARTY, gradient(0, schedule, mask_id=7, salt=2)) == []


def test_a_gradient_of_a_checkpointed_step_is_refused_with_other_values_under_the_same_mask():
    """Finding 14: it was taken after a checkpoint, and refused when the log was replayed."""
    coordinator, schedule = with_private_labels()
    all_push(coordinator, 0, schedule)
    coordinator.handle(GRADIENT_PARTY, gradient(0, schedule))
    coordinator.handle(GRADIENT_PARTY, Checkpointed(0))
    before = insides(coordinator)
    with pytest.raises(MessageRefused, match="the gradient of step 0 again with other values") as refused:
        coordinator.handle(GRADIENT_PARTY, gradient(0, schedule, salt=2))
    assert refused.value.refusal is Refusal.CONFLICT
    np.testing.assert_equal(insides(coordinator), before)


def test_a_gradient_off_the_wire_is_flat_and_means_the_same():
    coordinator, schedule = with_private_labels()
    all_push(coordinator, 0, schedule)
    values = gradient(0, schedule).release.values
    flat = Gradient(0, Release(values.reshape(-1), 5))
    for reply in coordinator.handle(GRADIENT_PARTY, flat):
        np.testing.assert_array_equal(reply.message.release.values, values)
    assert coordinator.handle(GRADIENT_PARTY, gradient(0, schedule)) == []


def test_over_private_labels_it_is_known_who_holds_whom_up():
    coordinator, schedule = with_private_labels()
    assert coordinator.waits_for("store") == ["store"]
    push(coordinator, "store", 0, schedule)
    assert coordinator.waits_for("store") == [GRADIENT_PARTY, "guard"]
    push(coordinator, GRADIENT_PARTY, 0, schedule)
    assert coordinator.waits_for(GRADIENT_PARTY) == coordinator.waits_for("store") == ["guard"]
    push(coordinator, "guard", 0, schedule)
    assert coordinator.waits_for("store") == coordinator.waits_for("guard") == [GRADIENT_PARTY], "for its gradient"
    assert coordinator.waits_for(GRADIENT_PARTY) == [GRADIENT_PARTY]
    coordinator.handle(GRADIENT_PARTY, gradient(0, schedule))
    assert coordinator.waits_for("store") == ["store"]


def test_at_staleness_a_party_waits_for_whoever_holds_up_the_lead():
    coordinator, schedule = with_private_labels(staleness=1)
    for step in range(3):
        push(coordinator, "store", step, schedule)
    push(coordinator, GRADIENT_PARTY, 0, schedule)
    assert coordinator.waits_for("store") == [GRADIENT_PARTY], (
        "the gradient_party was served step 0 and has not answered"
    )
    coordinator.handle(GRADIENT_PARTY, gradient(0, schedule))
    assert coordinator.waits_for("store") == ["guard"]
    push(coordinator, "guard", 0, schedule)
    assert coordinator.waits_for("store") == [GRADIENT_PARTY], "which has not pushed step 1"
    push(coordinator, GRADIENT_PARTY, 1, schedule)
    coordinator.handle(GRADIENT_PARTY, gradient(1, schedule))
    push(coordinator, GRADIENT_PARTY, 2, schedule)
    assert coordinator.waits_for("store") == ["guard"]


def test_gradients_that_all_have_been_served_are_not_stored():
    schedule = schedule_of(epochs=20)
    coordinator = Coordinator(PARTIES, schedule, 1, 0, gradient_party=GRADIENT_PARTY)
    for step in range(schedule.steps):
        all_push(coordinator, step, schedule)
        coordinator.handle(GRADIENT_PARTY, gradient(step, schedule))
        for party in PARTIES:
            coordinator.handle(party, Checkpointed(step))
        stored = ("gradients/", "gradient_answers/", "totals/", "served/", "digests/")
        assert not [key for key in coordinator.state() if key.startswith(stored)]


# Early ends.


def test_a_stop_at_a_partys_next_step_is_told_to_all():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    push(coordinator, "store", 0, schedule)
    assert (coordinator.end, coordinator.stopped) == (schedule.steps, None)
    replies = coordinator.handle("store", Stop(1))
    assert [(reply.to, reply.message) for reply in replies] == [(party, Stopped("store", 1)) for party in PARTIES]
    assert (coordinator.end, coordinator.stopped) == (1, Stopped("store", 1))
    assert served(push(coordinator, "browser", 0, schedule) + push(coordinator, "guard", 0, schedule)) == [
        (party, 0) for party in PARTIES
    ], "what was pushed before is still summed"


def test_a_party_that_starts_again_is_told_that_the_run_has_ended():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    all_push(coordinator, 0, schedule)
    coordinator.handle("guard", Stop(1))
    assert kinds(coordinator.resend("store", -1)) == [("store", "Total", 0), ("store", "Stopped", 1)]
    assert kinds(coordinator.resend("store", 0)) == [("store", "Stopped", 1)]


@pytest.mark.parametrize("step", [0, 2, 12, 99])
def test_a_stop_at_another_step_than_the_next_is_refused(step):
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    push(coordinator, "store", 0, schedule)
    before = insides(coordinator)
    with pytest.raises(MessageRefused, match=f"party 'store' stops at step {step}; its next is 1 of 12") as refused:
        coordinator.handle("store", Stop(step))
    assert refused.value.refusal is Refusal.GAP
    np.testing.assert_equal(insides(coordinator), before)


def test_a_party_that_stopped_pushes_nothing_more_and_the_others_may():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    all_push(coordinator, 0, schedule)
    coordinator.handle("store", Stop(1))
    before = insides(coordinator)
    with pytest.raises(MessageRefused, match="its next is 1 of 12, but it has stopped") as refused:
        push(coordinator, "store", 1, schedule)
    assert refused.value.refusal is Refusal.GAP
    np.testing.assert_equal(insides(coordinator), before)
    assert push(coordinator, "store", 0, schedule) == [], "what it pushed before may come again"
    assert push(coordinator, "guard", 1, schedule) == []


def test_a_stop_that_comes_again_is_no_news_and_another_one_is_refused():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    coordinator.handle("store", Stop(0))
    assert coordinator.handle("store", Stop(0)) == []
    with pytest.raises(MessageRefused, match="party 'store' stops at step 1"):
        coordinator.handle("store", Stop(1))
    assert coordinator.stopped == Stopped("store", 0)


@pytest.mark.parametrize("order", [("store", "guard"), ("guard", "store")])
def test_of_two_stops_the_smaller_ends_the_run(order):
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    all_push(coordinator, 0, schedule)
    push(coordinator, "guard", 1, schedule)
    stops = {"store": Stop(1), "guard": Stop(2)}
    for party in order:
        coordinator.handle(party, stops[party])
    assert (coordinator.end, coordinator.stopped) == (1, Stopped("store", 1))
    assert kinds(coordinator.resend("browser", 0)) == [("browser", "Stopped", 1)]


def test_an_unknown_party_stops_nothing():
    coordinator = Coordinator(PARTIES, schedule_of(), 1, 0)
    with pytest.raises(MessageRefused, match="'spy' is not a party"):
        coordinator.handle("spy", Stop(0))
    assert coordinator.stopped is None


# A blind server.


def masked(party, step, schedule, mask_id=None, salt=0):
    """Values over all of int64, as masks make them."""
    random = np.random.default_rng([party, step, salt])
    whole = np.iinfo(np.int64)
    values = random.integers(whole.min, whole.max, (schedule.visit(step).size, 1), endpoint=True)
    return Push(step, Release(values, 100 + party if mask_id is None else mask_id, 0.25 * party))


@pytest.mark.parametrize("blind", [False, True])
def test_masked_values_for_a_plain_server_are_refused_and_the_other_way_round(blind):
    schedule = schedule_of(short=False)
    coordinator = Coordinator(PARTIES, schedule, 1, 0, blind=blind)
    before = insides(coordinator)
    mask_id, has, server = (0, "plain", "blind") if blind else (7, "masked", "plain")
    with pytest.raises(
        MessageRefused, match=f"party 'store' pushed for step 0 {has} values; the run's server is {server}: .* run.toml"
    ) as refused:
        coordinator.handle("store", Push(0, Release(NOTHING, mask_id)))
    assert refused.value.refusal is Refusal.MISMATCH
    np.testing.assert_equal(insides(coordinator), before)


def test_under_masks_no_value_is_out_of_range_and_sums_run_over():
    schedule = schedule_of(short=False)
    coordinator = Coordinator(PARTIES, schedule, 1, 0, blind=True)
    extremes = np.array([[np.iinfo(np.int64).min], [np.iinfo(np.int64).max], [-1], [0]])
    for number, party in enumerate(PARTIES):
        replies = coordinator.handle(party, Push(0, Release(extremes, 1 + number)))
    for reply in replies:
        np.testing.assert_array_equal(reply.message.values, extremes + extremes + extremes)


def test_a_total_says_which_masks_are_on_it_and_how_much_noise_is_in_it():
    schedule = schedule_of(short=False)
    coordinator = Coordinator(PARTIES, schedule, 1, 0, blind=True)
    for number, party in enumerate(PARTIES):
        replies = coordinator.handle(party, masked(number, 0, schedule))
    expected = sum(masked(number, 0, schedule).release.values for number in range(3))
    for reply in replies:
        np.testing.assert_array_equal(reply.message.values, expected)
        assert reply.message.mask_ids == (100, 101, 102)
        assert reply.message.variance == 0.75


def test_a_plain_total_has_no_mask_ids_but_says_how_much_noise_is_in_it():
    schedule = schedule_of(short=False)
    coordinator = Coordinator(PARTIES[:2], schedule, 1, 0)
    coordinator.handle("store", Push(0, Release(NOTHING, 0, 0.5)))
    replies = coordinator.handle("browser", Push(0, Release(NOTHING, 0, 1.5)))
    assert [(reply.message.mask_ids, reply.message.variance) for reply in replies] == [((), 2.0)] * 2


def test_a_stale_part_comes_with_the_mask_id_and_noise_it_was_made_with():
    schedule = schedule_of(blocks=1, epochs=4, short=False)
    coordinator = Coordinator(PARTIES[:2], schedule, 1, 2, blind=True)
    (first,) = coordinator.handle("store", masked(0, 0, schedule, mask_id=50))
    assert (first.message.mask_ids, first.message.pushed_at) == ((50, 0), (0, -1))
    coordinator.handle("browser", masked(1, 0, schedule, mask_id=60))
    (second,) = coordinator.handle("store", masked(0, 1, schedule, mask_id=51))
    assert (second.message.mask_ids, second.message.pushed_at, second.message.variance) == ((51, 60), (1, 0), 0.25)
    expected = masked(0, 1, schedule).release.values + masked(1, 0, schedule).release.values
    np.testing.assert_array_equal(second.message.values, expected)


def test_a_blind_server_of_three_parties_serves_no_total_that_lacks_a_part():
    """Finding 13: at staleness above 0 a party ahead was served one other party's predictions alone."""
    schedule = schedule_of(blocks=2, epochs=3, short=False)
    coordinator = Coordinator(PARTIES, schedule, 1, 3, blind=True)
    for step in range(2):
        assert coordinator.handle("store", masked(0, step, schedule)) == []
        assert coordinator.handle("browser", masked(1, step, schedule)) == []
    assert coordinator.waits_for("store") == ["guard"]
    first = coordinator.handle("guard", masked(2, 0, schedule))
    assert served(first) == [("store", 0), ("browser", 0), ("guard", 0)]
    assert coordinator.waits_for("browser") == ["guard"]
    second = coordinator.handle("guard", masked(2, 1, schedule))
    assert {reply.message.pushed_at for reply in [*first, *second]} == {(0, 0, 0), (1, 1, 1)}
    (ahead,) = coordinator.handle("store", masked(0, 2, schedule))
    assert ahead.message.pushed_at[0] == 2
    assert min(ahead.message.pushed_at) >= 0


@SLOW
@given(crowds(), st.integers(0, 5), st.data())
def test_under_masks_no_total_of_three_parties_ever_lacks_a_part_and_all_are_served(crowd, staleness, data):
    parties, schedule = len(crowd.lookaheads), crowd.schedule
    coordinator = Coordinator(PARTIES[:parties], schedule, 1, staleness, blind=True)
    while ready := crowd.ready():
        party = data.draw(st.sampled_from(ready))
        for reply in coordinator.handle(PARTIES[party], masked(party, crowd.pushed[party], schedule)):
            crowd.received[PARTIES.index(reply.to)].append(reply.message)
        crowd.pushed[party] += 1
    for totals in crowd.received:
        assert [total.step for total in totals] == list(range(schedule.steps))
        assert parties < 3 or all(min(total.pushed_at) >= 0 for total in totals)


def test_a_push_repeated_under_another_mask_id_leaves_the_first_one_in_place():
    schedule = schedule_of(short=False)
    coordinator = Coordinator(PARTIES[:2], schedule, 1, 0, blind=True)
    coordinator.handle("store", masked(0, 0, schedule, mask_id=50))
    before = insides(coordinator)
    assert coordinator.handle("store", masked(0, 0, schedule, mask_id=51, salt=1)) == []
    np.testing.assert_equal(insides(coordinator), before)
    with pytest.raises(MessageRefused, match="pushed step 0 again with other values") as refused:
        coordinator.handle("store", masked(0, 0, schedule, mask_id=50, salt=1))
    assert refused.value.refusal is Refusal.CONFLICT
    replies = coordinator.handle("browser", masked(1, 0, schedule, mask_id=60))
    expected = masked(0, 0, schedule).release.values + masked(1, 0, schedule).release.values
    for reply in replies:
        assert reply.message.mask_ids == (50, 60)
        np.testing.assert_array_equal(reply.message.values, expected)


# All of it through a snapshot.


def same_answers(one, other):
    assert [(reply.to, type(reply.message)) for reply in one] == [(reply.to, type(reply.message)) for reply in other]
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_equal(vars(plain(mine.message)), vars(plain(theirs.message)))


def plain(message):
    return copy.copy(message.release) if isinstance(message, Gradient) else message


@SLOW
@given(crowds(), st.integers(0, 3), st.booleans(), st.booleans(), st.data())
def test_a_restored_coordinator_goes_on_through_masks_gradients_and_stops(crowd, staleness, blind, private, data):
    """At any moment the run goes on from a snapshot, and answers as the one that was never stopped."""
    schedule, names = crowd.schedule, PARTIES[: len(crowd.lookaheads)]
    gradient_party = data.draw(st.sampled_from(names)) if private else None

    def new():
        return Coordinator(names, schedule, 1, staleness, blind=blind, gradient_party=gradient_party)

    one, other = new(), new()
    stopped, without_gradient = set(), []
    for _ in range(200):
        ready = [party for party in crowd.ready() if party not in stopped]
        choices = [("push", party) for party in ready] + [("stop", party) for party in ready]
        choices += [("gradient", step) for step in without_gradient[:1]]
        choices += [("keep", party) for party in range(len(names)) if crowd.received[party]]
        if not ready and not without_gradient:
            break
        what, which = data.draw(st.sampled_from(choices))
        if data.draw(st.integers(0, 3)) == 0:
            other, before = new(), other
            other.restore(copy.deepcopy(before.state()))
        match what:
            case "push":
                step = crowd.pushed[which]
                crowd.pushed[which] += 1
                message = masked(which, step, schedule)
                if not blind:
                    message = Push(step, Release(codes(which, step, schedule), 0, 0.25 * which))
                sender = names[which]
            case "stop":
                if data.draw(st.integers(0, 9)):
                    continue
                stopped.add(which)
                sender, message = names[which], Stop(crowd.pushed[which])
            case "gradient":
                sender, message = gradient_party, gradient(without_gradient.pop(0), schedule)
            case "keep":
                sender, message = names[which], Checkpointed(len(crowd.received[which]) - 1)
        replies = one.handle(sender, message)
        same_answers(replies, other.handle(sender, message))
        for reply in replies:
            if isinstance(reply.message, Stopped):
                continue
            crowd.received[names.index(reply.to)].append(reply.message)
            if reply.to == gradient_party:
                without_gradient.append(reply.message.step)
        np.testing.assert_equal(other.state(), one.state())
        assert (other.end, other.stopped, other.last_gradient) == (one.end, one.stopped, one.last_gradient)
        for name in names:
            assert other.waits_for(name) == one.waits_for(name)
            same_answers(one.resend(name, -1), other.resend(name, -1))
