import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.party.early_stopping import BestSoFar, best_so_far

LOSSES = st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4, math.nan, math.inf]), min_size=1, max_size=12)


def numbered(losses):
    return dict(enumerate(losses, 1))


@pytest.mark.parametrize(
    ("losses", "stop_after", "expected"),
    [
        ([], 1, BestSoFar(0)),
        ([0.5], 1, BestSoFar(1)),
        ([0.5, 0.4, 0.3], 1, BestSoFar(3)),
        ([0.5, 0.4, 0.4], 1, BestSoFar(2, 3)),
        ([0.5, 0.4, 0.45, 0.42], 3, BestSoFar(2)),
        ([0.5, 0.4, 0.45, 0.42, 0.41], 3, BestSoFar(2, 5)),
        ([0.5, 0.4, 0.45, 0.3], 2, BestSoFar(4)),
    ],
)
def test_the_epoch_with_the_lowest_loss_is_final_once_enough_epochs_had_none_lower(losses, stop_after, expected):
    assert best_so_far(numbered(losses), stop_after) == expected


def test_what_comes_after_the_end_changes_nothing():
    assert best_so_far(numbered([0.5, 0.6, 0.1]), 1) == BestSoFar(1, 2)


def test_epochs_count_up_to_the_first_that_is_not_known():
    assert best_so_far({1: 0.5, 3: 0.1, 4: 0.2}, 1) == BestSoFar(1)


def test_losses_that_are_no_numbers_gain_nothing():
    assert best_so_far(numbered([math.nan, math.nan, None]), 2) == BestSoFar(1, 3)
    assert best_so_far(numbered([math.nan, 0.7, math.nan]), 2) == BestSoFar(2)


@given(LOSSES, st.integers(1, 4))
def test_the_answer_does_not_depend_on_when_it_is_asked_for(losses, stop_after):
    """Whoever asks epoch by epoch, or once at the end, keeps the same epoch."""
    answers = [best_so_far(numbered(losses[: end + 1]), stop_after) for end in range(len(losses))]
    final = [answer for answer in answers if answer.final_at]
    assert answers[-1] == (final or answers)[-1 if not final else 0]
    for answer in final:
        assert answer == final[0]


@given(LOSSES, st.integers(1, 4))
def test_no_epoch_up_to_the_end_has_a_lower_loss_than_the_one_that_is_kept(losses, stop_after):
    found = best_so_far(numbered(losses), stop_after)
    seen = losses[: found.epoch + stop_after] if found.final_at else losses
    finite = [loss for loss in seen if math.isfinite(loss)]
    assert not finite or losses[found.epoch - 1] == min(finite)
