import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.models.bootstrap import RESAMPLES, paired_difference, resampled
from fdml.models.metrics import auc, metric

ROWS = 400


def sample_of(labels, weights=None):
    return RowSet({}, labels, np.ones(len(labels)) if weights is None else weights)


def scores_of(labels, noise, seed):
    return (labels + noise * np.random.default_rng(seed).normal(size=len(labels)))[:, None]


@pytest.fixture
def labels():
    return np.random.default_rng(1).permutation(ROWS) % 2.0


def test_the_difference_is_that_of_the_metrics_and_lies_in_its_interval(labels):
    good, bad = scores_of(labels, 0.5, 2), scores_of(labels, 2.0, 3)
    found = paired_difference("binary", good, bad, sample_of(labels), seed=7)
    ones = np.ones(ROWS)
    assert found.value == auc(labels, good[:, 0], ones) - auc(labels, bad[:, 0], ones)
    assert 0.0 < found.low < found.value < found.high


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_every_task_is_measured_by_its_own_metric_with_the_rows_weights(task, labels):
    weights = np.random.default_rng(4).uniform(0.5, 2.0, ROWS)
    one, two = scores_of(labels, 0.7, 2), scores_of(labels, 1.0, 3)
    if task == "multiclass":
        one, two = (np.hstack([1.0 - each, each]) for each in (one, two))
    sample = sample_of(labels, weights)
    found = paired_difference(task, one, two, sample, seed=7)
    assert found.value == pytest.approx(metric(task, one, sample) - metric(task, two, sample), abs=1e-12)
    assert found.low < found.value < found.high


def test_both_are_measured_on_the_same_resamples(labels):
    """A score that is a hair better everywhere is surely better, however uncertain each of the two is."""
    score = scores_of(labels, 2.0, 2)
    better = score + 0.2 * labels[:, None]
    found = paired_difference("binary", better, score, sample_of(labels), seed=7)
    assert found.low > 0.0
    same = paired_difference("binary", score, 3.0 * score, sample_of(labels), seed=7)
    assert same == (0.0, 0.0, 0.0)


def test_the_same_seed_gives_the_same_interval(labels):
    one, two = scores_of(labels, 1.0, 2), scores_of(labels, 1.5, 3)
    found = [paired_difference("binary", one, two, sample_of(labels), seed=seed) for seed in (7, 7, 8)]
    assert found[0] == found[1] != found[2]


def test_the_interval_is_as_wide_as_the_spread_over_fresh_rows():
    """95 % intervals of 40 samples of one distribution hold its true difference in most of them."""
    random = np.random.default_rng(5)
    held = 0
    for _ in range(40):
        labels = random.permutation(ROWS) % 2.0
        noise = random.normal(size=(2, ROWS))
        one, two = (labels + 1.0 * noise[0])[:, None], (labels + 1.5 * noise[1])[:, None]
        found = paired_difference("binary", one, two, sample_of(labels), seed=7)
        true = 0.760250 - 0.681324  # Phi(1 / sqrt(2)) - Phi(1 / (1.5 sqrt(2)))
        held += found.low <= true <= found.high
    assert held >= 32


def test_rows_of_one_class_have_no_difference():
    found = paired_difference("binary", np.ones((5, 1)), np.ones((5, 1)), sample_of(np.zeros(5)), seed=7)
    assert found == (None, None, None)


def test_where_most_resamples_have_no_metric_there_is_no_interval():
    labels = np.array([1.0, 0.0])
    found = paired_difference("binary", np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]]), sample_of(labels), seed=1)
    assert found.value == 1.0
    assert found.low is None or found.low <= found.value


def test_a_score_that_is_no_number_has_no_difference(labels):
    broken = np.full((ROWS, 1), np.nan)
    found = paired_difference("regression", broken, scores_of(labels, 1.0, 2), sample_of(labels), seed=7)
    assert found == (None, None, None)


def test_the_interval_of_many_rows_is_found_from_small_parts_of_them():
    """It is as wide as that of all rows resampled as a whole."""
    labels = np.arange(12_000) % 2.0
    one, two = scores_of(labels, 1.0, 2), scores_of(labels, 1.1, 3)
    found = paired_difference("regression", one, two, sample_of(labels), seed=7)
    random, whole = np.random.default_rng(8), []
    for _ in range(200):
        drawn = random.integers(len(labels), size=len(labels))
        whole.append(metric("regression", one[drawn], sample_of(labels[drawn])))
        whole[-1] -= metric("regression", two[drawn], sample_of(labels[drawn]))
    low, high = np.quantile(whole, [0.025, 0.975])
    assert found.high - found.low == pytest.approx(high - low, rel=0.25)
    assert found.low < found.value < found.high


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("rows", [3, 24, 700])
def test_resamples_measured_together_are_those_drawn_and_measured_one_by_one(task, rows):
    random = np.random.default_rng(rows)
    labels, weights = random.permutation(rows) % 2.0, random.uniform(0.5, 2.0, rows)
    one, two = scores_of(labels, 1.0, 2).round(1), scores_of(labels, 1.5, 3).round(1)
    if task == "multiclass":
        one, two = (np.hstack([1.0 - each, each]) for each in (one, two))
    found = paired_difference(task, one, two, sample_of(labels, weights), seed=7)

    drawing, differences = np.random.default_rng([7, rows]), []
    for _ in range(RESAMPLES):
        counts = np.bincount(drawing.integers(rows, size=rows), minlength=rows)
        resample = sample_of(labels, weights * counts)
        differences.append(metric(task, one, resample) - metric(task, two, resample))
    known = np.array(differences)[np.isfinite(differences)]
    low, high = np.quantile(known - found.value, [0.025, 0.975]) + found.value
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_several_scores_are_measured_on_the_same_resamples(task, labels):
    scores = [scores_of(labels, noise, seed) for noise, seed in ((0.5, 2), (2.0, 3))]
    values, deviations = resampled(task, scores, sample_of(labels), seed=7)
    assert values == pytest.approx([metric(task, each, sample_of(labels)) for each in scores])
    assert deviations.shape == (RESAMPLES, 2)
    pair = paired_difference(task, *scores, sample_of(labels), seed=7)
    low, high = np.quantile(deviations[:, 0] - deviations[:, 1], [0.025, 0.975])
    assert (pair.low, pair.high) == pytest.approx((pair.value + low, pair.value + high))


def test_where_most_resamples_have_no_metric_there_are_no_deviations():
    labels = np.zeros(30)
    labels[0] = 1.0
    values, deviations = resampled("binary", [scores_of(labels, 1.0, 1)], sample_of(labels), seed=7)
    assert np.isfinite(values).all()
    assert len(deviations) in (0, *range(RESAMPLES // 2, RESAMPLES + 1))
    none, empty = resampled("binary", [np.zeros((30, 1))], sample_of(np.zeros(30)), seed=7)
    assert np.isnan(none).all()
    assert not len(empty)
