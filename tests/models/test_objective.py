import numpy as np
import pytest

from fdml.models.joint import SUM
from fdml.models.losses import LOSSES
from fdml.models.objective import Objective, objective_for


def test_the_objective_of_a_run_is_its_loss_after_the_sum():
    objective = objective_for("softmax", 4)
    assert (objective.loss, objective.joint) == (LOSSES["softmax"], SUM)
    assert (objective.classes, objective.scores, objective.width) == (4, 4, 4)


@pytest.mark.parametrize(("loss", "classes"), [("logistic", 2), ("hinge", 2), ("squared", 0)])
def test_one_float_travels_where_a_row_has_one_score(loss, classes):
    objective = objective_for(loss, classes)
    assert (objective.scores, objective.width, objective.kernel_code) == (1, 1, LOSSES[loss].code)


def test_with_the_sum_the_gradient_of_the_total_is_that_of_the_score():
    total, labels = np.array([[0.5], [-2.0]]), np.array([1.0, 0.0])
    objective = objective_for("logistic", 2)
    np.testing.assert_array_equal(objective.score(total), total)
    np.testing.assert_array_equal(objective.gradient(total, labels), LOSSES["logistic"].gradient(total, labels))
    assert objective == Objective(LOSSES["logistic"], 2, SUM)


@pytest.mark.parametrize(("loss", "classes"), [("logistic", 2), ("softmax", 3)])
def test_who_sees_a_gradient_can_compute_the_label_and_the_total_behind_it(loss, classes):
    """Of several scores up to their mean, which no gradient tells."""
    objective = objective_for(loss, classes)
    random = np.random.default_rng(3)
    total, labels = random.normal(size=(20, objective.width)), random.integers(0, classes, 20).astype(np.float64)
    found, told = objective.invert_gradient(objective.gradient(total, labels))
    np.testing.assert_array_equal(told, labels)
    if objective.width > 1:
        total, found = (each - each.mean(axis=1, keepdims=True) for each in (total, found))
    np.testing.assert_allclose(found, total, atol=1e-6)


@pytest.mark.parametrize(("loss", "classes"), [("logistic", 2), ("hinge", 2), ("squared", 0), ("softmax", 3)])
def test_the_value_is_the_loss_of_every_rows_score(loss, classes):
    objective = objective_for(loss, classes)
    total = np.random.default_rng(4).normal(size=(10, objective.width))
    labels = np.arange(10) % max(classes, 2) * 1.0
    np.testing.assert_array_equal(objective.value(total, labels), LOSSES[loss].value(total, labels))
    assert objective.value(total, labels).shape == (10,)


def test_a_gradient_is_how_the_value_moves():
    objective = objective_for("softmax", 3)
    total, labels = np.random.default_rng(5).normal(size=(4, 3)), np.array([0.0, 1.0, 2.0, 1.0])
    for score in range(3):
        step = np.zeros(3)
        step[score] = 1e-5
        moved = (objective.value(total + step, labels) - objective.value(total - step, labels)) / 2e-5
        np.testing.assert_allclose(moved, objective.gradient(total, labels)[:, score], atol=1e-6)
