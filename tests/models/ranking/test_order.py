"""Figures of the order within groups, against scikit-learn group by group."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, roc_auc_score

from fdml.data.row_set import RowSet
from fdml.errors import DataError
from fdml.models.bootstrap import paired_difference, resampled
from fdml.models.metrics import mean_loss, metric
from fdml.models.ranking.order import order_in_groups, ranking_figures
from fdml.models.task_metrics import task_metrics


def drawn(seed, groups=40, size=15, levels=None):
    random = np.random.default_rng(seed)
    rows = groups * size
    score = random.normal(size=(rows, 1)) if levels is None else random.integers(levels, size=(rows, 1)).astype(float)
    labels = (random.random(rows) < 0.3).astype(float)
    sample = RowSet({}, labels, np.ones(rows), random.permutation(np.repeat(np.arange(groups) * 5, size)))
    return score, sample


def by_scikit_learn(score, sample):
    found = []
    for group in np.unique(sample.groups):
        mine = sample.groups == group
        labels, scores = sample.labels[mine], score[mine, 0]
        if 0.0 < labels.sum() < len(labels):
            found.append((roc_auc_score(labels, scores), ndcg_score(labels[None], scores[None], k=10)))
    return np.array(found)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([None, 3, 1]))
def test_the_figures_of_each_group_are_those_of_scikit_learn(seed, levels):
    score, sample = drawn(seed, groups=8, levels=levels)
    found = order_in_groups(score, sample)
    assert np.column_stack(found) == pytest.approx(by_scikit_learn(score, sample))


def test_figures_are_means_over_groups():
    score, sample = drawn(3)
    expected = by_scikit_learn(score, sample).mean(axis=0)
    figures = task_metrics("binary", "pairwise", score, sample)
    assert list(figures) == ["group_auc", "ndcg"]
    assert list(figures.values()) == pytest.approx(expected)
    assert metric("binary", score, sample, "pairwise") == figures["group_auc"]


def test_an_offset_of_a_group_changes_nothing():
    score, sample = drawn(4)
    moved = score + np.sin(sample.groups)[:, None] * 9.0
    assert ranking_figures(moved, sample) == pytest.approx(ranking_figures(score, sample))
    assert mean_loss("pairwise", moved, sample) == pytest.approx(mean_loss("pairwise", score, sample))


def test_groups_of_one_label_alone_have_no_figures():
    sample = RowSet({}, np.array([1.0, 1.0, 0.0]), np.ones(3), np.array([0, 0, 1]))
    score = np.zeros((3, 1))
    assert ranking_figures(score, sample) == {"group_auc": None, "ndcg": None}
    assert np.isnan(metric("binary", score, sample, "pairwise"))


def test_rows_without_groups_are_refused_with_the_setting():
    with pytest.raises(DataError, match=r"data\.group"):
        ranking_figures(np.zeros((2, 1)), RowSet({}, np.array([0.0, 1.0]), np.ones(2)))


def test_a_difference_is_resampled_by_groups():
    score, sample = drawn(5)
    better = score + 2.0 * sample.labels[:, None]
    found = paired_difference("binary", better, score, sample, seed=1, loss="pairwise")
    assert found.value == pytest.approx(
        ranking_figures(better, sample)["group_auc"] - ranking_figures(score, sample)["group_auc"]
    )
    assert found.low is not None
    assert 0.0 < found.low < found.value < found.high
    same = paired_difference("binary", score, score, sample, seed=1, loss="pairwise")
    assert same == (0.0, 0.0, 0.0)


def test_the_scores_of_coalitions_are_resampled_by_groups():
    score, sample = drawn(6)
    values, deviations = resampled("binary", [score, -score], sample, seed=1, loss="pairwise")
    assert values[0] == pytest.approx(1.0 - values[1])
    assert deviations[:, 0] == pytest.approx(-deviations[:, 1])
    assert deviations[:, 0].std() == pytest.approx(order_in_groups(score, sample).auc.std() / np.sqrt(40), rel=0.3)
