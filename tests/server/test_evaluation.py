import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.messages import BestEpoch, HeldOutPredictions, Release
from fdml.protocol.row_pieces import all_pieces, held_out_pieces
from fdml.server.evaluation import HeldOutSums
from tests.protocol.codes import LARGEST_CODE

PARTIES = ("store", "a/b", "")
SIZE = 4


def part(party, epoch):
    return np.random.default_rng([party, epoch]).integers(-LARGEST_CODE, LARGEST_CODE, SIZE)


def give(sums, party, epoch):
    return sums.take(PARTIES[party], HeldOutPredictions(epoch, Release(part(party, epoch))))


def sum_of(epoch):
    return sum(part(party, epoch) for party in range(len(PARTIES)))


def test_the_total_comes_with_the_last_part_and_is_the_sum():
    sums = HeldOutSums(PARTIES, SIZE, 5)
    assert give(sums, 1, 1) is None
    assert give(sums, 0, 1) is None
    total = give(sums, 2, 1)
    assert total.epoch == 1
    assert total.values.dtype == np.int64
    np.testing.assert_array_equal(total.values, sum_of(1))


@given(st.permutations([(party, epoch) for party in range(3) for epoch in (1, 2, 3)]), st.data())
def test_in_any_order_and_however_often_repeated_every_epoch_is_summed_once(order, data):
    sums, totals = HeldOutSums(PARTIES, SIZE, 3), {}
    for number, (party, epoch) in enumerate(order):
        total = give(sums, party, epoch)
        if total is not None:
            assert epoch not in totals
            totals[epoch] = total
        again = order[data.draw(st.integers(0, number))]
        assert give(sums, *again) is None
    assert sorted(totals) == [1, 2, 3]
    for epoch, total in totals.items():
        np.testing.assert_array_equal(total.values, sum_of(epoch))


@pytest.mark.parametrize("complete", [False, True])
def test_other_values_for_the_same_epoch_are_refused_also_when_it_is_summed(complete):
    sums = HeldOutSums(PARTIES, SIZE, 5)
    give(sums, 0, 1)
    if complete:
        give(sums, 1, 1)
        give(sums, 2, 1)
        sums.discard("store", 1)
    before = copy.deepcopy(sums.state())
    with pytest.raises(MessageRefused, match="'store' sent its held-out predictions of epoch 1 again") as refused:
        sums.take("store", HeldOutPredictions(1, Release(part(0, 1) + 1)))
    assert refused.value.refusal is Refusal.CONFLICT
    np.testing.assert_equal(sums.state(), before)


REFUSED = {
    "epoch 0": (HeldOutPredictions(0, Release(part(0, 1))), Refusal.GAP, "epoch 0 of 5"),
    "past the end": (HeldOutPredictions(6, Release(part(0, 1))), Refusal.GAP, "epoch 6 of 5"),
    "too few": (
        HeldOutPredictions(1, Release(part(0, 1)[1:])),
        Refusal.INVALID,
        "sent 3 held-out predictions .* has 4",
    ),
    "too many": (
        HeldOutPredictions(1, Release(np.zeros(5, np.int64))),
        Refusal.INVALID,
        "sent 5 held-out predictions .* has 4",
    ),
    "floats": (
        HeldOutPredictions(1, Release(np.full(SIZE, np.nan))),
        Refusal.INVALID,
        "as float64; the run has 4 as int64",
    ),
    "too large": (
        HeldOutPredictions(1, Release(np.array([0, 0, 0, LARGEST_CODE + 1]))),
        Refusal.INVALID,
        r"sent for held-out rows a prediction of size 1\.04858e\+06; at most",
    ),
    "the smallest integer": (
        HeldOutPredictions(1, Release(np.array([0, 0, 0, np.iinfo(np.int64).min]))),
        Refusal.INVALID,
        r"a prediction of size 2\.14748e\+09",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_refused_and_changes_nothing(what):
    bad, refusal, text = REFUSED[what]
    sums = HeldOutSums(PARTIES, SIZE, 5)
    give(sums, 1, 1)
    before = copy.deepcopy(sums.state())
    with pytest.raises(MessageRefused, match=text) as refused:
        sums.take("store", bad)
    assert refused.value.refusal is refusal
    np.testing.assert_equal(sums.state(), before)
    give(sums, 0, 1)
    np.testing.assert_array_equal(give(sums, 2, 1).values, sum_of(1))


def test_a_table_counts_row_by_row():
    sums = HeldOutSums(PARTIES[:1], SIZE, 1)
    total = sums.take("store", HeldOutPredictions(1, Release(part(0, 1).reshape(2, 2))))
    np.testing.assert_array_equal(total.values, part(0, 1))


def test_totals_are_there_until_they_are_scored():
    sums = HeldOutSums(PARTIES, SIZE, 5)
    for epoch in (2, 1):
        for party in range(3):
            give(sums, party, epoch)
    assert [total.epoch for total in sums.totals()] == [1, 2]
    sums.discard("store", 1)
    assert [total.epoch for total in sums.totals()] == [2]
    sums.discard("store", 1)
    assert give(sums, 0, 1) is None
    assert [total.epoch for total in sums.totals()] == [2]


@pytest.mark.parametrize("epoch", [0, 6])
def test_an_epoch_that_is_none_cannot_be_scored(epoch):
    with pytest.raises(MessageRefused, match=f"epoch {epoch} of 5") as refused:
        HeldOutSums(PARTIES, SIZE, 5).discard("store", epoch)
    assert refused.value.refusal is Refusal.GAP


def test_a_run_without_held_out_rows_has_totals_too():
    sums = HeldOutSums(PARTIES[:1], 0, 1)
    assert sums.take("store", HeldOutPredictions(1, Release(np.zeros(0, np.int64)))).values.size == 0
    assert len(sums.totals()) == 1


@given(st.permutations([(party, epoch) for party in range(3) for epoch in (1, 2, 3)]), st.integers(0, 9))
def test_restored_sums_go_on_as_those_that_gave_the_state(order, stop):
    sums, other = HeldOutSums(PARTIES, SIZE, 3), HeldOutSums(PARTIES, SIZE, 3)
    for party, epoch in order[:stop]:
        if give(sums, party, epoch) is not None and epoch == 2:
            sums.discard("store", epoch)
    other.restore(copy.deepcopy(sums.state()))
    np.testing.assert_equal(other.state(), sums.state())
    for party, epoch in order:
        ours, theirs = give(sums, party, epoch), give(other, party, epoch)
        assert (ours is None) == (theirs is None)
    np.testing.assert_equal(other.state(), sums.state())


# Where the sums decide when to stop.


def deciding(lookahead=1, blocks=2):
    """Sums whose figures are stored by a label party at the step that the schedule says."""
    return HeldOutSums(PARTIES, SIZE, 9, scored=lambda step: (step - lookahead) // blocks)


def evaluated(sums, *epochs):
    for epoch in epochs:
        for party in range(len(PARTIES)):
            give(sums, party, epoch)
        sums.discard("store", epoch)
    return sums


def epochs_of(totals):
    return [total.epoch for total in totals]


def test_an_evaluated_sum_that_decides_stays_until_the_label_party_has_stored_its_figures():
    sums = evaluated(deciding(), 1, 2, 3)
    assert not sums.has_total(2)
    assert epochs_of(sums.totals(-1)) == [1, 2, 3]
    assert epochs_of(sums.totals(4)) == [2, 3], "epoch 1 is scored before step 3, epoch 2 before step 5"
    sums.forget(5)
    assert epochs_of(sums.totals(-1)) == [3]


def test_a_sum_that_was_not_evaluated_is_always_sent_again():
    sums = evaluated(deciding(), 1)
    for party in range(len(PARTIES)):
        give(sums, party, 2)
    assert epochs_of(sums.totals(99)) == [2]
    sums.forget(99)
    assert epochs_of(sums.totals(99)) == [2]


def test_a_sum_that_decides_nothing_is_gone_once_it_is_evaluated():
    assert evaluated(HeldOutSums(PARTIES, SIZE, 9), 1).totals() == []


def test_the_best_epoch_is_kept_and_never_changed():
    sums = deciding()
    assert sums.take_best("store", BestEpoch(b"one"))
    assert not sums.take_best("store", BestEpoch(b"one"))
    with pytest.raises(MessageRefused, match="another best epoch than before") as refused:
        sums.take_best("store", BestEpoch(b"two"))
    assert refused.value.refusal is Refusal.CONFLICT
    assert sums.best == BestEpoch(b"one")


def test_evaluated_sums_and_the_best_epoch_outlive_the_server():
    sums, again = evaluated(deciding(), 1, 2), deciding()
    sums.take_best("store", BestEpoch(b"sealed"))
    again.restore(sums.state())
    assert again.best == BestEpoch(b"sealed")
    assert epochs_of(again.totals(-1)) == [1, 2]
    assert not again.has_total(1)


PIECES = held_out_pieces(SIZE, 1, 3)


def give_piece(sums, party, epoch, number):
    piece = PIECES.at(number)
    return sums.take(PARTIES[party], HeldOutPredictions(epoch, Release(part(party, epoch)[piece.test]), piece))


def in_pieces():
    return HeldOutSums(PARTIES, SIZE, 3, pieces=PIECES)


@given(st.permutations([(party, number) for party in range(3) for number in (0, 1)]))
def test_each_piece_is_summed_as_soon_as_all_have_sent_it(order):
    sums, totals = in_pieces(), []
    for party, number in order:
        total = give_piece(sums, party, 1, number)
        totals += [] if total is None else [total]
        assert give_piece(sums, party, 1, number) is None
    ordered = sorted(totals, key=lambda total: total.piece.number)
    assert [each.piece for each in ordered] == all_pieces(PIECES)
    np.testing.assert_array_equal(np.concatenate([each.values for each in ordered]), sum_of(1))


@pytest.mark.parametrize("piece", [None, PIECES.at(2), held_out_pieces(SIZE, 1, 2).at(1)], ids=["whole", "far", "size"])
def test_other_pieces_than_those_of_the_run_are_refused(piece):
    sums = in_pieces()
    with pytest.raises(MessageRefused, match="in other pieces than the 2 of this run"):
        sums.take("store", HeldOutPredictions(1, Release(part(0, 1)), piece))
    assert sums.state() == {}


def test_pieces_outlive_a_restart_and_go_when_the_epoch_was_evaluated():
    sums, again = in_pieces(), in_pieces()
    for party in range(3):
        give_piece(sums, party, 1, 1)
    give_piece(sums, 0, 1, 0)
    again.restore(sums.state())
    np.testing.assert_equal(again.state(), sums.state())
    assert again.has_part("store", HeldOutPredictions(1, Release(part(0, 1)), PIECES))
    assert not again.has_part(PARTIES[1], HeldOutPredictions(1, Release(part(0, 1)), PIECES))
    assert [total.piece.number for total in again.totals()] == [1]
    again.discard("store", 1)
    assert not again.has_total(1)
    assert again.totals() == []
