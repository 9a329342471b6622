"""Pushes of few bits at the server: what it takes, what it refuses, what it keeps."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.few_bits import GRID, FewBits
from fdml.protocol.messages import Push, Release, Total
from fdml.protocol.schedule import schedule_for
from fdml.server.checks import digest_of_release, digest_of_values
from fdml.server.coordinator import Coordinator
from fdml.server.differences import check_difference, whole_of

PARTIES = ("ann", "bob")
SCHEDULE = schedule_for(8, 2, 2, 1, 4, 7)
"""Two blocks of four rows."""
IN_STEP, APART = FewBits(4, 2), FewBits(4, 2, in_step=False)
BLIND = FewBits(4, 3, blind=True)
MOST = GRID.largest_code(2)


def coordinator(few, staleness=0, parties=PARTIES):
    return Coordinator(parties, SCHEDULE, 1, staleness, blind=few.blind, grid=GRID, few_bits=few)


def whole(value):
    return Release(np.full((4, 1), value, np.int16))


def change(value, scale=0, bits=4, mask_id=0):
    return Release(np.full((4, 1), value, np.int16), mask_id, 0.0, bits, scale)


def steps_of(block):
    return [step for step in range(SCHEDULE.steps) if SCHEDULE.visit(step).block == block]


def push_all(server, few, upto, value=0):
    """Both parties push all steps before `upto`: first whole, then differences of 0."""
    replies = []
    for step in range(upto):
        for party in PARTIES:
            release = whole(value) if step < SCHEDULE.blocks else change(0, bits=few.push_bits)
            replies = server.handle(party, Push(step, release))
    return replies


def test_a_difference_is_added_to_what_was_there():
    first = whole(3)
    before = Release(np.array([5, -7], np.int16))
    assert whole_of(before, first) is first
    found = whole_of(before, Release(np.array([1, -2], np.int16), 0, 0.0, 4, 3))
    assert found.values.tolist() == [13, -23]
    assert found.bits == 0


def test_in_step_the_total_is_the_sum_of_the_differences():
    server = coordinator(IN_STEP)
    push_all(server, IN_STEP, 2, value=100)
    server.handle("ann", Push(2, change(7, scale=3)))
    replies = server.handle("bob", Push(2, change(-2, scale=3)))
    total = replies[0].message
    assert (total.bits, total.values.ravel().tolist()) == (4, [5] * 4)
    block = SCHEDULE.visit(2)
    assert server.matrix.read(0, block).release.values.ravel().tolist() == [156] * 4
    assert server.matrix.read(1, block).release.values.ravel().tolist() == [84] * 4


@pytest.mark.parametrize("few", [IN_STEP, APART])
def test_the_largest_prediction_of_a_push_is_that_of_the_party_and_not_its_difference(few):
    server = coordinator(few)
    assert server.largest == {}
    push_all(server, few, 2, value=-100)
    assert server.largest == dict.fromkeys(PARTIES, 100 * GRID.step)
    server.handle("ann", Push(2, change(-7, scale=3)))
    assert server.largest["ann"] == 156 * GRID.step
    with pytest.raises(MessageRefused):
        server.handle("bob", Push(2, change(7, scale=15)))
    assert server.largest["bob"] == 100 * GRID.step, "what was refused does not count"


def test_under_masks_the_server_knows_no_largest_prediction():
    server = coordinator(BLIND, parties=("ann", "bob", "eve"))
    server.handle("ann", Push(0, replace(whole(100), mask_id=7)))
    assert server.largest == {}


def test_a_sum_past_the_ring_begins_again_and_the_parties_know_their_own_part():
    server = coordinator(IN_STEP)
    push_all(server, IN_STEP, 2)
    server.handle("ann", Push(2, change(7)))
    total = server.handle("bob", Push(2, change(7)))[0].message
    assert total.values.ravel().tolist() == [-2] * 4


def test_apart_a_total_is_whole_with_the_newest_of_each_party():
    server = coordinator(APART, staleness=4)
    push_all(server, APART, 2, value=100)
    first, second = steps_of(SCHEDULE.visit(2).block)[1:3]
    assert first == 2
    served = server.handle("ann", Push(2, change(5, scale=4)))
    assert served[0].message.values.ravel().tolist() == [280] * 4
    assert served[0].message.bits == 0
    server.handle("bob", Push(2, change(-1)))
    for step in range(3, second + 1):
        total = server.handle("bob", Push(step, change(-1, scale=1)))[-1].message
    assert total.values.ravel().tolist() == [180 + 97] * 4, "bob's two differences are added up, ann's one"


@pytest.mark.parametrize("staleness", [0, 3])
def test_a_snapshot_in_between_changes_nothing(staleness):
    few = IN_STEP if staleness == 0 else APART
    server = coordinator(few, staleness)
    for step in range(SCHEDULE.steps):
        for number, party in enumerate(PARTIES):
            release = whole(9 * number) if step < 2 else change((step + number) % 7, scale=step % 3)
            again = coordinator(few, staleness)
            again.restore({key: array.copy() for key, array in server.state().items()})
            replies = server.handle(party, Push(step, release))
            same = again.handle(party, Push(step, release))
            assert [_plain(each.message) for each in replies] == [_plain(each.message) for each in same]
            assert [_plain(each.message) for each in server.resend(party, -1)] == [
                _plain(each.message) for each in again.resend(party, -1)
            ]
    for number in range(2):
        np.testing.assert_array_equal(server.matrix.column(number), again.matrix.column(number))


def _plain(total):
    assert isinstance(total, Total)
    return total.step, total.bits, total.values.tolist(), total.pushed_at


@pytest.mark.parametrize(
    ("step", "release", "words"),
    [
        (0, change(1), "values of 4 bits instead of whole"),
        (2, whole(1), "values of whole bits instead of 4"),
        (2, change(1, bits=8), "values of 8 bits instead of 4"),
        (2, change(8), r"a difference of 8 steps of 2\*\*0; 4 bits have 7 steps"),
        (2, change(1, scale=13), r"a difference of 1 steps of 2\*\*13; 4 bits have 7 steps of at most 2\*\*12"),
        (2, change(7, scale=12), f"differences that come to a prediction of {(100 + 7 * 2**12) * GRID.step:g}"),
        (2, change(-7, scale=12), f"a prediction of {(7 * 2**12 - 100) * GRID.step:g}; at most {MOST * GRID.step:g}"),
    ],
)
@pytest.mark.parametrize("few", [IN_STEP, APART])
def test_a_difference_that_may_not_be_is_refused_and_changes_nothing(few, step, release, words):
    server = coordinator(few)
    push_all(server, few, step, value=100)
    before = server.state()
    with pytest.raises(MessageRefused, match=words):
        server.handle("ann", Push(step, release))
    after = server.state()
    assert list(before) == list(after)
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_under_masks_every_number_of_the_ring_is_taken_and_summed_in_it():
    parties = ("ann", "bob", "cid")
    server = coordinator(BLIND, parties=parties)
    assert BLIND.push_bits == 5
    for step in range(2):
        for party in parties:
            server.handle(party, Push(step, replace(whole(100), mask_id=3)))
    for party, value in zip(parties, (-16, 15, -16), strict=True):
        replies = server.handle(party, Push(2, change(value, bits=5, mask_id=3)))
    total = replies[0].message
    assert (total.bits, set(total.values.ravel().tolist())) == (5, {15}), "-17 modulo 32"


@pytest.mark.parametrize("other", [change(3, scale=2), change(2, scale=1), change(3, scale=1, bits=8)])
def test_a_difference_that_comes_again_must_be_the_same(other):
    server = coordinator(IN_STEP)
    push_all(server, IN_STEP, 2)
    server.handle("ann", Push(2, change(3, scale=1)))
    assert server.handle("ann", Push(2, change(3, scale=1))) == []
    with pytest.raises(MessageRefused, match="again with other values") as refused:
        server.handle("ann", Push(2, other))
    assert refused.value.refusal is Refusal.CONFLICT


def test_digests_of_whole_predictions_are_as_they_were():
    """A server's snapshot of an older start still knows what it was sent."""
    assert digest_of_release(whole(3)) == digest_of_values(whole(3).values)
    assert digest_of_release(change(3)) != digest_of_values(change(3).values)


def test_the_largest_difference_that_may_be_is_taken():
    before = np.array([[0], [MOST - 7 * 64]], np.int16)
    check_difference("ann pushed", change_of([7, 7], 6), IN_STEP, before, MOST)
    with pytest.raises(MessageRefused):
        check_difference("ann pushed", change_of([7, 7], 6), IN_STEP, before + np.int16(1), MOST)


def change_of(values, scale):
    return Release(np.array(values, np.int16).reshape(-1, 1), 0, 0.0, 4, scale)
