import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.models.calibration import IDENTITY, Calibration, calibrate
from fdml.models.metrics import mean_loss


def binary(rows=20_000, seed=0):
    """True log-odds, and rows whose labels are drawn from them."""
    random = np.random.default_rng(seed)
    logit = random.normal(size=(rows, 1)) * 2
    labels = (random.random(rows) < 1 / (1 + np.exp(-logit[:, 0]))).astype(float)
    return logit, RowSet({}, labels, np.ones(rows))


def test_a_score_is_scaled_and_then_moved():
    score = np.array([[1.0, -2.0], [0.5, 3.0]])
    moved = Calibration(2.0, np.array([0.5, -1.0])).apply(score)
    np.testing.assert_array_equal(moved, [[2.5, -5.0], [1.5, 5.0]])


def test_the_identity_changes_nothing():
    score = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(IDENTITY.apply(score), score)


def test_the_scale_and_offset_that_were_put_in_are_found():
    logit, rows = binary()
    found = calibrate("logistic", (logit - 1.0) * 3.0, rows)
    assert found.scale == pytest.approx(1 / 3, rel=0.05)
    assert found.offset[0] == pytest.approx(1.0, rel=0.1)


def test_scores_that_are_right_stay_nearly_as_they_are():
    logit, rows = binary()
    found = calibrate("logistic", logit, rows)
    assert found.scale == pytest.approx(1.0, rel=0.05)
    assert found.offset[0] == pytest.approx(0.0, abs=0.05)


def test_a_score_that_says_the_opposite_is_turned_round():
    logit, rows = binary()
    assert calibrate("logistic", -logit, rows).scale == pytest.approx(-1.0, rel=0.05)


def test_every_class_has_an_offset_of_its_own():
    random = np.random.default_rng(1)
    true = random.normal(size=(8000, 3))
    chances = np.exp(true) / np.exp(true).sum(axis=1, keepdims=True)
    labels = (chances.cumsum(axis=1) < random.random((8000, 1))).sum(axis=1).astype(float)
    found = calibrate("softmax", true - [1.0, 0.0, -2.0], RowSet({}, labels, np.ones(8000)))
    assert found.offset.shape == (3,)
    np.testing.assert_allclose(found.offset - found.offset[1], [1.0, 0.0, -2.0], atol=0.15)


def test_targets_of_a_regression_are_met_by_least_squares():
    random = np.random.default_rng(2)
    score = random.normal(size=(500, 1))
    rows = RowSet({}, 2.0 * score[:, 0] + 3.0, np.ones(500))
    found = calibrate("squared", score, rows)
    assert (found.scale, found.offset[0]) == (pytest.approx(2.0, abs=1e-4), pytest.approx(3.0, abs=1e-4))


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared", "hinge"])
def test_calibration_never_makes_the_loss_worse(loss):
    random = np.random.default_rng(3)
    score = random.normal(size=(300, 3 if loss == "softmax" else 1))
    labels = random.normal(size=300) if loss == "squared" else random.integers(0, score.shape[1] + 1, 300) % 3 % 2.0
    rows = RowSet({}, labels, random.uniform(0.5, 2.0, 300))
    moved = calibrate(loss, score, rows).apply(score)
    assert mean_loss(loss, moved, rows) <= mean_loss(loss, score, rows) + 1e-12


def test_rows_of_weight_zero_count_for_nothing():
    logit, rows = binary(4000)
    doubled = np.concatenate([logit, -50 * logit])
    labels, weights = np.tile(rows.labels, 2), np.repeat([1.0, 0.0], 4000)
    with_them = calibrate("logistic", doubled, RowSet({}, labels, weights))
    without = calibrate("logistic", logit, rows)
    assert with_them.scale == pytest.approx(without.scale, rel=1e-3)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared"])
def test_no_other_scale_or_offset_is_better(loss):
    random = np.random.default_rng(5)
    score = random.normal(size=(500, 3 if loss == "softmax" else 1))
    labels = 2 * score[:, 0] - 0.5 if loss == "squared" else (score[:, 0] > random.normal(size=500)).astype(float)
    rows = RowSet({}, labels, random.uniform(0.2, 2.0, 500))
    found = calibrate(loss, score, rows)
    least = mean_loss(loss, found.apply(score), rows)
    for _ in range(30):
        scale, offset = found.scale + 0.1 * random.normal(), found.offset + 0.1 * random.normal(size=found.offset.shape)
        assert mean_loss(loss, scale * score + offset, rows) >= least - 1e-9
