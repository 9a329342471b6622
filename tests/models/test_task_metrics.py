"""Our figures against scikit-learn's, weighted and with ties; and what there is where a figure is not defined."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn import metrics as sk

from fdml.data.row_set import RowSet
from fdml.models.metrics import Ranking
from fdml.models.task_metrics import calibration_error, macro_auc, macro_f1, task_metrics

WEIGHT = st.sampled_from([0.5, 1.0, 2.0])
SCORE = st.sampled_from([-3.0, -0.5, 0.0, 0.25, 2.0])
BINARY = st.lists(st.tuples(st.booleans(), SCORE, WEIGHT), min_size=2, max_size=40).filter(
    lambda rows: len({label for label, _, _ in rows}) == 2
)
CLASSES = 3
MULTI = st.lists(st.tuples(st.integers(0, CLASSES - 1), st.tuples(*[SCORE] * CLASSES), WEIGHT), min_size=3, max_size=30)
TARGETS = st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9), WEIGHT), min_size=2, max_size=30)


def columns(rows):
    return [np.array(column, np.float64) for column in zip(*rows, strict=True)]


def close(value):
    return pytest.approx(value, abs=1e-9)


def binary(labels, score, weights, **options):
    return task_metrics("binary", "logistic", score[:, None], RowSet({}, labels, weights), **options)


@given(BINARY)
def test_binary_figures_are_those_of_scikit_learn(rows):
    labels, score, weights = columns(rows)
    found, chance = binary(labels, score, weights, threshold=0.6), expit(score)
    assert found["auc"] == close(sk.roc_auc_score(labels, score, sample_weight=weights))
    assert found["average_precision"] == close(sk.average_precision_score(labels, score, sample_weight=weights))
    assert found["brier"] == close(sk.brier_score_loss(labels, chance, sample_weight=weights))
    assert found["log_loss"] == close(sk.log_loss(labels, chance, sample_weight=weights))
    assert found["accuracy"] == close(sk.accuracy_score(labels, chance >= 0.6, sample_weight=weights))
    assert found["threshold"] == 0.6
    false, true, _ = sk.roc_curve(labels, score, sample_weight=weights, drop_intermediate=False)
    assert found["ks"] == close(np.max(np.abs(true - false)))


def test_lift_is_how_much_more_frequent_positives_are_in_the_top_tenth():
    labels, score = np.repeat([1.0, 0.0], [4, 16]), np.linspace(2, -2, 20)
    assert Ranking.of(labels, score, np.ones(20)).lift(0.1) == pytest.approx(1.0 / 0.2)
    assert Ranking.of(labels, -score, np.ones(20)).lift(0.1) == 0.0
    assert Ranking.of(labels, np.zeros(20), np.ones(20)).lift(0.1) == pytest.approx(1.0), (
        "of equal scores a part counts"
    )


def test_lift_and_ks_count_rows_by_their_weight():
    """A row of weight 2 is as two rows."""
    labels, score = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.9, 0.8, 0.3, 0.1])
    once = Ranking.of(labels, score, np.array([2.0, 1.0, 1.0, 1.0]))
    twice = Ranking.of(np.append(labels, 1.0), np.append(score, 0.9), np.ones(5))
    assert (once.ks, once.lift(0.5)) == (pytest.approx(twice.ks), pytest.approx(twice.lift(0.5)))


def test_calibration_error_is_the_mean_distance_of_probability_and_frequency():
    chance = np.array([0.05, 0.05, 0.95, 0.95, 1.0])
    labels = np.array([0.0, 1.0, 1.0, 1.0, 1.0])
    assert calibration_error(labels, chance, np.ones(5)) == pytest.approx((2 * 0.45 + abs(2.9 - 3.0)) / 5)
    assert calibration_error(labels, labels, np.ones(5)) == 0.0


def test_rows_of_one_class_have_a_loss_and_an_accuracy_and_nothing_that_compares_classes():
    found = binary(np.ones(3), np.array([1.0, 2.0, -1.0]), np.ones(3))
    assert [name for name, figure in found.items() if figure is None] == ["auc", "average_precision", "ks", "lift"]
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["log_loss"] > 0


def test_a_hinge_score_has_no_probability():
    sample = RowSet({}, np.array([0.0, 1.0, 1.0]), np.ones(3))
    found = task_metrics("binary", "hinge", np.array([[-1.0], [0.5], [-0.5]]), sample)
    assert list(found) == ["auc", "average_precision", "ks", "lift", "accuracy"]
    assert found["accuracy"] == pytest.approx(2 / 3)


@given(MULTI)
def test_multi_class_figures_are_those_of_scikit_learn(rows):
    labels, score, weights = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    found = task_metrics("multiclass", "softmax", score, RowSet({}, labels, weights))
    chosen, chances = score.argmax(axis=1), softmax(score, axis=1)
    assert found["accuracy"] == close(sk.accuracy_score(labels, chosen, sample_weight=weights))
    assert found["macro_f1"] == close(
        sk.f1_score(labels, chosen, average="macro", sample_weight=weights, zero_division=0)
    )
    assert found["log_loss"] == close(sk.log_loss(labels, chances, sample_weight=weights, labels=range(CLASSES)))
    if len(np.unique(labels)) < CLASSES:
        assert found["macro_auc"] is None
    else:
        expected = sk.roc_auc_score(labels, chances, multi_class="ovr", average="macro", sample_weight=weights)
        assert found["macro_auc"] == close(expected)


def test_classes_that_do_not_occur_count_in_no_mean():
    assert macro_f1(np.array([0, 0]), np.array([0, 0]), np.ones(2)) == 1.0
    assert macro_auc(np.array([0, 1]), np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]), np.ones(2)) is None


def test_too_many_classes_and_rows_are_not_ranked():
    chances = np.full((1001, 1000), 0.001)
    assert macro_auc(np.zeros(1001, np.int64), chances, np.ones(1001)) is None


@given(TARGETS)
def test_figures_of_a_regression_are_those_of_scikit_learn_in_the_units_of_the_labels(rows):
    targets, score, weights = columns(rows)
    found = task_metrics("regression", "squared", score[:, None], RowSet({}, targets, weights), unit=10.0)
    mean_square = sk.mean_squared_error(10 * targets, 10 * score, sample_weight=weights)
    assert found["rmse"] == pytest.approx(np.sqrt(mean_square), abs=1e-6)
    assert found["mae"] == close(sk.mean_absolute_error(10 * targets, 10 * score, sample_weight=weights))
    assert list(found) == ["r2", "rmse", "mae"]
