import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.data.schedule import schedule_for
from fdml.errors import MessageRefused
from fdml.exchange.fixed_point import LARGEST_CODE
from fdml.exchange.messages import Push, Release, Total
from fdml.server.coordinator import Coordinator

PARTIES = ("store", "browser", "guard")
SLOW = settings(deadline=None, max_examples=60)


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
    return [(reply.to, reply.total.step) for reply in replies]


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
            crowd.received[PARTIES.index(reply.to)].append(reply.total)
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
            np.testing.assert_array_equal(reply.total.values, total.values)
            assert reply.total.made_at == total.made_at
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
    ahead = [reply.total.step for reply in got if reply.to == "store"]
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
        np.testing.assert_array_equal(reply.total.values, sum_of(step, schedule, 2))
        assert reply.total.made_at == (step, step)


def test_a_part_that_never_came_counts_as_zero_from_before_the_first_step():
    schedule = schedule_of()
    coordinator = Coordinator(PARTIES[:2], schedule, 1, 2)
    (reply,) = push(coordinator, "store", 0, schedule)
    np.testing.assert_array_equal(reply.total.values, codes(0, 0, schedule))
    assert reply.total.made_at == (0, -1)
    assert reply.total.lag == 1


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
    assert reply.total.made_at == (4, before)
    assert reply.total.lag == 4 - before
    np.testing.assert_array_equal(reply.total.values, codes(0, 4, schedule) + codes(1, before, schedule))


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
REFUSED = {
    "an unknown party": (
        "spy",
        1,
        np.zeros(BLOCK, np.int64),
        r"'spy' is not a party of this run; it has store, browser",
    ),
    "a step left out": ("store", 2, np.zeros(BLOCK, np.int64), r"party 'store' pushed step 2; its next is 1 of 12"),
    "a step twice": ("store", 0, np.zeros(BLOCK, np.int64), r"party 'store' pushed step 0; its next is 1 of 12"),
    "a step below 0": ("store", -1, np.zeros(BLOCK, np.int64), r"party 'store' pushed step -1; its next is 1 of 12"),
    "rows missing": (
        "store",
        1,
        np.zeros((3, 1), np.int64),
        r"int64 of shape \(3, 1\) for step 1; .* int64 of shape \(4, 1\)",
    ),
    "outputs too many": ("store", 1, np.zeros((4, 2), np.int64), r"int64 of shape \(4, 2\) for step 1"),
    "a flat array": ("store", 1, np.zeros(4, np.int64), r"int64 of shape \(4,\) for step 1"),
    "floats": ("store", 1, np.zeros(BLOCK), r"float64 of shape \(4, 1\) for step 1"),
    "other integers": ("store", 1, np.zeros(BLOCK, np.uint64), r"uint64 of shape \(4, 1\) for step 1"),
    "too large": (
        "store",
        1,
        np.full(BLOCK, 2 * LARGEST_CODE),
        r"prediction of 2\.09715e\+06 for step 1; at most 1\.04858e\+06",
    ),
    "too small": ("store", 1, np.full(BLOCK, -LARGEST_CODE - 1), r"prediction of -1\.04858e\+06 for step 1"),
    "the smallest integer": (
        "store",
        1,
        np.full(BLOCK, np.iinfo(np.int64).min),
        r"prediction of -2\.14748e\+09 for step 1",
    ),
}


def insides(coordinator):
    return copy.deepcopy((vars(coordinator._clocks), coordinator._recent, vars(coordinator._matrix)))


@pytest.mark.parametrize("what", REFUSED)
def test_what_breaks_the_protocol_is_refused_by_name_and_the_others_go_on(what):
    sender, step, values, message = REFUSED[what]
    schedule = schedule_of(short=False)
    coordinator = Coordinator(PARTIES, schedule, 1, 0)
    for party in PARTIES:
        push(coordinator, party, 0, schedule)
    push(coordinator, "browser", 1, schedule)
    before = insides(coordinator)
    with pytest.raises(MessageRefused, match=message):
        coordinator.handle(sender, Push(step, Release(values)))
    np.testing.assert_equal(insides(coordinator), before)
    push(coordinator, "guard", 1, schedule)
    replies = push(coordinator, "store", 1, schedule)
    assert served(replies) == [("store", 1), ("browser", 1), ("guard", 1)]
    np.testing.assert_array_equal(replies[0].total.values, sum_of(1, schedule, 3))


def test_the_largest_predictions_are_taken():
    coordinator = Coordinator(PARTIES[:1], schedule_of(short=False), 1, 0)
    values = np.array([[LARGEST_CODE], [-LARGEST_CODE], [0], [1]])
    (reply,) = coordinator.handle("store", Push(0, Release(values)))
    np.testing.assert_array_equal(reply.total.values, values)


def test_a_step_past_the_last_is_refused():
    schedule = schedule_of(blocks=1, epochs=2, short=False)
    coordinator = Coordinator(PARTIES[:1], schedule, 1, 0)
    for step in range(2):
        push(coordinator, "store", step, schedule)
    with pytest.raises(MessageRefused, match="party 'store' pushed step 2; its next is 2 of 2"):
        coordinator.handle("store", Push(2, Release(np.zeros(BLOCK, np.int64))))


def test_a_total_does_not_change_when_later_pushes_come():
    schedule = schedule_of(blocks=1, epochs=3)
    coordinator = Coordinator(PARTIES[:1], schedule, 1, 0)
    (first,) = push(coordinator, "store", 0, schedule)
    kept = first.total.values.copy()
    push(coordinator, "store", 1, schedule)
    np.testing.assert_array_equal(first.total.values, kept)


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
