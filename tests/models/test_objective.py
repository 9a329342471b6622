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
