"""What each loss is; `tests/contracts/test_losses.py` has what all of them must pass."""

import numpy as np
import pytest
from scipy.special import expit

from fdml.errors import SettingsError
from fdml.models.losses import LOSSES
from fdml.settings_choices import LOSSES_OF, PRIVATE_LOSSES

SCORES = np.array([[-30.0], [-1.5], [0.0], [0.25], [4.0], [30.0]])
ONES, ZEROS = np.ones(6), np.zeros(6)


def test_every_loss_of_a_task_is_there_and_no_other():
    assert set(LOSSES) == {loss for losses in LOSSES_OF.values() for loss in losses}


def test_the_logistic_loss_is_minus_the_log_of_the_probability():
    loss = LOSSES["logistic"]
    np.testing.assert_allclose(loss.value(SCORES, ONES), -np.log(expit(SCORES[:, 0])), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(loss.value(SCORES, ZEROS), -np.log(expit(-SCORES[:, 0])), rtol=1e-6, atol=1e-9)


def test_the_logistic_loss_of_scores_far_out_is_the_score():
    far = np.array([[1e4], [-1e4]])
    np.testing.assert_allclose(LOSSES["logistic"].value(far, np.array([0.0, 1.0])), 1e4)
    np.testing.assert_array_equal(LOSSES["logistic"].value(far, np.array([1.0, 0.0])), 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_logistic_loss_is_in_the_precision_of_the_score(dtype):
    assert LOSSES["logistic"].value(SCORES.astype(dtype), ONES).dtype == dtype


def test_hinge_counts_rows_inside_the_margin_alone():
    loss = LOSSES["hinge"]
    np.testing.assert_allclose(loss.value(SCORES, ONES), [31.0, 2.5, 1.0, 0.75, 0.0, 0.0])
    np.testing.assert_array_equal(loss.gradient(SCORES, ONES)[:, 0], [-1, -1, -1, -1, 0, 0])
    np.testing.assert_array_equal(loss.gradient(SCORES, ZEROS)[:, 0], [0, 0, 1, 1, 1, 1])


def test_the_squared_loss_is_half_the_squared_error():
    targets = np.arange(6.0)
    np.testing.assert_allclose(LOSSES["squared"].value(SCORES, targets), (SCORES[:, 0] - targets) ** 2 / 2)
    np.testing.assert_array_equal(LOSSES["squared"].gradient(SCORES, targets)[:, 0], SCORES[:, 0] - targets)


def test_softmax_of_two_classes_is_logistic_of_their_difference():
    score = np.random.default_rng(0).normal(size=(20, 2))
    labels = np.arange(20) % 2.0
    difference = score[:, 1:] - score[:, :1]
    softmax, logistic = LOSSES["softmax"], LOSSES["logistic"]
    np.testing.assert_allclose(softmax.value(score, labels), logistic.value(difference, labels), rtol=1e-9)
    np.testing.assert_allclose(softmax.gradient(score, labels)[:, 1:], logistic.gradient(difference, labels))
    np.testing.assert_allclose(softmax.probability(score), logistic.probability(difference), atol=1e-12)


def test_softmax_does_not_change_where_all_scores_move_together():
    score, labels = np.random.default_rng(1).normal(size=(10, 4)), np.arange(10) % 4.0
    moved = score + 500.0
    np.testing.assert_allclose(
        LOSSES["softmax"].value(moved, labels), LOSSES["softmax"].value(score, labels), atol=1e-9
    )


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_probabilities_sum_to_one(loss):
    score = np.random.default_rng(2).normal(size=(10, 3 if loss == "softmax" else 1)) * 20
    chances = LOSSES[loss].probability(score)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (chances >= 0).all()


@pytest.mark.parametrize(
    ("loss", "classes", "scores"), [("logistic", 2, 1), ("hinge", 2, 1), ("softmax", 5, 5), ("squared", 0, 1)]
)
def test_a_row_has_one_score_or_one_for_each_class(loss, classes, scores):
    assert LOSSES[loss].scores(classes) == scores


# What a gradient discloses


@pytest.mark.parametrize("loss", PRIVATE_LOSSES)
def test_a_gradient_discloses_the_label(loss):
    random = np.random.default_rng(3)
    score = random.normal(size=(200, 4 if loss == "softmax" else 1)) * 4
    labels = random.integers(0, 4 if loss == "softmax" else 2, 200).astype(float)
    _, found = LOSSES[loss].invert_gradient(LOSSES[loss].gradient(score, labels))
    np.testing.assert_array_equal(found, labels)


def test_a_gradient_of_nothing_is_a_score_as_far_as_the_grid_can_tell():
    score, labels = LOSSES["logistic"].invert_gradient(np.array([[0.0], [-1.0], [1.0]]))
    assert labels.tolist() == [0.0, 1.0, 0.0]
    assert np.isfinite(score).all()
    assert np.abs(score).max() == pytest.approx(np.log(2.0**33), rel=1e-3)


def test_a_residual_is_a_score_beside_the_target_zero():
    score, labels = LOSSES["squared"].invert_gradient(SCORES)
    np.testing.assert_array_equal(LOSSES["squared"].gradient(score, labels), SCORES)


def test_the_gradient_of_hinge_shows_no_score():
    with pytest.raises(SettingsError, match=r"gradient of hinge \(6 rows\) does not show scores; use logistic"):
        LOSSES["hinge"].invert_gradient(SCORES)


@pytest.mark.parametrize("name", ["logistic", "squared", "softmax"])
def test_curvatures_are_the_slopes_of_the_gradient(name):
    loss, random, shift = LOSSES[name], np.random.default_rng(3), 1e-5
    scores = random.normal(size=(20, loss.scores(3)))
    labels = random.integers(0, 2, 20).astype(float)
    found = loss.curvatures(scores, labels)
    assert found.shape == scores.shape
    for k in range(scores.shape[1]):
        moved = np.zeros_like(scores)
        moved[:, k] = shift
        slope = loss.gradient(scores + moved, labels)[:, k] - loss.gradient(scores - moved, labels)[:, k]
        np.testing.assert_allclose(found[:, k], slope / (2 * shift), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_curvatures_are_never_below_zero_nor_above_the_largest(name):
    loss = LOSSES[name]
    scores = np.linspace(-40.0, 40.0, 30)[:, None] * np.ones(loss.scores(3))
    found = loss.curvatures(scores, np.zeros(30))
    assert (found >= 0.0).all()
    assert (found <= loss.curvature + 1e-12).all()
