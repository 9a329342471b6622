"""Pairs of rows in groups: the compiled loop against a slow twin, and totals that come block by block."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.errors import DataError
from fdml.models.losses import loss_named
from fdml.models.ranking.pairs import GroupTotals, RowPairs, pair_losses

SCORES = np.array([0.5, -1.0, 2.0, 0.0, 1.0, -0.5])
LABELS = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
GROUPS = np.array([3, 3, 3, 7, 7, 9])


def slow_loss(scores, labels, groups):
    """The sum over all pairs, each counted once, straight from the definition."""
    total = 0.0
    for i in range(len(scores)):
        for j in range(len(scores)):
            if groups[i] == groups[j] and labels[i] > labels[j] and np.isfinite(scores[[i, j]]).all():
                total += np.log1p(np.exp(-(scores[i] - scores[j]))) / (np.sum(groups == groups[i]) - 1)
    return total


def slow_gradient(scores, labels, groups, step=1e-6):
    found = np.zeros(len(scores))
    for row in range(len(scores)):
        up, down = scores.copy(), scores.copy()
        up[row] += step
        down[row] -= step
        found[row] = (slow_loss(up, labels, groups) - slow_loss(down, labels, groups)) / (2.0 * step)
    return found


@st.composite
def rows(draw):
    count = draw(st.integers(1, 12))
    whole = st.lists(st.integers(0, 3), min_size=count, max_size=count)
    scores = draw(st.lists(st.floats(-8, 8), min_size=count, max_size=count))
    return np.array(scores), (np.array(draw(whole)) % 2).astype(float), np.array(draw(whole))


@settings(max_examples=60, deadline=None)
@given(rows())
def test_the_compiled_pairs_equal_the_definition(given_rows):
    scores, labels, groups = given_rows
    gradient, losses = RowPairs(groups, labels).compare(scores, 0, len(scores))
    assert losses.sum() == pytest.approx(slow_loss(scores, labels, groups), abs=1e-9)
    assert gradient[:, 0] == pytest.approx(slow_gradient(scores, labels, groups), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(rows())
def test_a_gradient_is_within_one_and_has_the_sign_of_its_label(given_rows):
    scores, labels, groups = given_rows
    gradient = RowPairs(groups, labels).compare(scores, 0, len(scores))[0][:, 0]
    assert np.abs(gradient).max() <= 1.0
    assert (gradient[labels > 0] <= 0.0).all()
    assert (gradient[labels == 0] >= 0.0).all()


def test_far_scores_overflow_nothing():
    scores, labels = np.array([-900.0, 900.0]), np.array([1.0, 0.0])
    gradient, losses = RowPairs(np.zeros(2, np.int64), labels).compare(scores, 0, 2)
    assert gradient[:, 0].tolist() == [-1.0, 1.0]
    assert losses.sum() == pytest.approx(1800.0)


def test_a_row_without_a_counterpart_pulls_nothing():
    gradient, losses = RowPairs(GROUPS, LABELS).compare(SCORES, 5, 6)
    assert gradient.tolist() == [[0.0]]
    assert losses.tolist() == [0.0]


def test_rows_without_groups_are_refused_with_the_setting():
    with pytest.raises(DataError, match=r"data\.group"):
        pair_losses(None, SCORES[:, None], LABELS)


def test_a_block_is_compared_with_the_last_totals_of_the_other_blocks():
    totals = GroupTotals(GROUPS, LABELS)
    first = totals.gradient(0, SCORES[:2, None])
    known = np.where(np.arange(6) < 2, SCORES, np.nan)
    assert first[:, 0] == pytest.approx(slow_gradient(known, LABELS, GROUPS)[:2], abs=1e-6)
    second = totals.gradient(2, SCORES[2:, None])
    assert second[:, 0] == pytest.approx(slow_gradient(SCORES, LABELS, GROUPS)[2:], abs=1e-6)
    again = totals.gradient(0, SCORES[:2, None] + 1.0)
    moved = np.where(np.arange(6) < 2, SCORES + 1.0, SCORES)
    assert again[:, 0] == pytest.approx(slow_gradient(moved, LABELS, GROUPS)[:2], abs=1e-6)


def test_totals_that_are_restored_go_on_alike():
    totals, other = GroupTotals(GROUPS, LABELS), GroupTotals(GROUPS, LABELS)
    totals.gradient(0, SCORES[:4, None])
    other.restore(totals.scores)
    assert np.array_equal(other.gradient(4, SCORES[4:, None]), totals.gradient(4, SCORES[4:, None]))
    assert other.loss == totals.loss


def test_the_row_that_others_read_has_the_gradient_and_at_least_the_curvature():
    """What keeps a party's moves within a block stable: see `fdml.models.losses.Pairwise`."""
    pairs, loss = RowPairs(GROUPS, LABELS), loss_named("pairwise")
    gradient = pairs.compare(SCORES, 0, 6)[0]
    read, labels = loss.invert_gradient(gradient)
    assert loss.gradient(read, labels) == pytest.approx(gradient, abs=1e-9)
    step = 1e-5
    for row in range(5):
        up, down = SCORES.copy(), SCORES.copy()
        up[row] += step
        down[row] -= step
        bend = (pairs.compare(up, row, row + 1)[0] - pairs.compare(down, row, row + 1)[0])[0, 0] / (2.0 * step)
        assert loss.curvatures(read, labels)[row, 0] >= bend - 1e-6
