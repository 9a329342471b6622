import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.data.schedule import schedule_for
from fdml.errors import MessageRefused, Refusal
from fdml.exchange.fixed_point import LARGEST_CODE
from fdml.exchange.messages import Kept, Push, Release, Total
from fdml.server.coordinator import Coordinator

PARTIES = ("store", "browser", "guard")
SLOW = settings(max_examples=60)


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
        values, made_at = 0, []
        for pushed in self.history:
            made = max((at for at in pushed if at <= step and self.schedule.visit(at).block == block), default=-1)
            values = values + pushed.get(made, 0)
            made_at.append(made)
        return Total(step, values, tuple(made_at))


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
            assert total.made_at == (total.step,) * parties
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
            assert reply.message.made_at == total.made_at
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
        assert reply.message.made_at == (step, step)


def test_a_part_that_never_came_counts_as_zero_from_before_the_first_step():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES[:2], schedule, 1, 2)
    (reply,) = push(coordinator, "store", 0, schedule)
    np.testing.assert_array_equal(reply.message.values, codes(0, 0, schedule))
    assert reply.message.made_at == (0, -1)
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
    assert reply.message.made_at == (4, before)
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
        r"for step 1 a prediction of 2\.09715e\+06; at most 1\.04858e\+06",
    ),
    "too small": (
        "store",
        Push(1, Release(np.full(BLOCK, -LARGEST_CODE - 1))),
        Refusal.INVALID,
        r"for step 1 a prediction of -1\.04858e\+06",
    ),
    "the smallest integer": (
        "store",
        Push(1, Release(np.full(BLOCK, np.iinfo(np.int64).min))),
        Refusal.INVALID,
        r"for step 1 a prediction of -2\.14748e\+09",
    ),
    "one value too large among good ones": (
        "store",
        Push(1, Release(np.array([[0], [0], [0], [LARGEST_CODE + 1]]))),
        Refusal.INVALID,
        r"for step 1 a prediction of 1\.04858e\+06",
    ),
    "kept before it was served": (
        "store",
        Kept(1),
        Refusal.GAP,
        r"party 'store' says it has kept step 1, but was served only 0",
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
    kept = first.message.values.copy()
    push(coordinator, "store", 1, schedule)
    np.testing.assert_array_equal(first.message.values, kept)


def test_what_all_have_read_is_not_kept_twice():
    """Memory stays bounded by how far the parties are apart."""
    schedule = schedule_of(epochs=20)
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    for step in range(schedule.steps):
        for party in PARTIES:
            push(coordinator, party, step, schedule)
            assert sum(len(recent) for recent in coordinator._recent) <= len(PARTIES)


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
def test_whatever_was_served_is_given_again_until_it_is_kept(crowd, staleness, data):
    parties = PARTIES[: len(crowd.lookaheads)]
    coordinator = Coordinator(parties, crowd.schedule, 1, staleness)
    kept = [-1] * len(parties)
    for _ in run_in_any_order(coordinator, crowd, data):
        party = data.draw(st.integers(0, len(parties) - 1))
        received = crowd.received[party]
        if received and data.draw(st.booleans()):
            step = data.draw(st.integers(0, len(received) - 1))
            assert coordinator.handle(parties[party], Kept(step)) == []
            kept[party] = max(kept[party], step)
        done = data.draw(st.integers(-1, len(received)))
        again = coordinator.resend(parties[party], done)
        assert [reply.to for reply in again] == [parties[party]] * len(again)
        expected = received[1 + max(done, kept[party]) :]
        assert [reply.message.step for reply in again] == [total.step for total in expected]
        for reply, total in zip(again, expected, strict=True):
            np.testing.assert_array_equal(reply.message.values, total.values)
            assert reply.message.made_at == total.made_at


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
            assert twin.message.made_at == reply.message.made_at
    np.testing.assert_equal(other.state(), coordinator.state())


def test_what_was_kept_is_forgotten():
    """With parties that keep their state, memory is bounded by what they have not kept."""
    schedule = schedule_of(epochs=20)
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    for step in range(schedule.steps):
        for party in PARTIES:
            push(coordinator, party, step, schedule)
        for party in PARTIES:
            coordinator.handle(party, Kept(step))
        assert not [key for key in coordinator.state() if "/" in key]


def test_what_one_party_kept_is_still_there_for_the_others():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    for party in PARTIES:
        push(coordinator, party, 0, schedule)
    coordinator.handle("store", Kept(0))
    assert coordinator.resend("store", -1) == []
    (again,) = coordinator.resend("browser", -1)
    np.testing.assert_array_equal(again.message.values, sum_of(0, schedule, 3))


def test_keeping_an_older_step_again_changes_nothing():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES[:1], schedule, 1, 0)
    for step in range(3):
        push(coordinator, "store", step, schedule)
    coordinator.handle("store", Kept(1))
    before = insides(coordinator)
    coordinator.handle("store", Kept(0))
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
