"""What every joint function and every objective must pass."""

import numpy as np
import pytest

from fdml.errors import SettingsError
from fdml.models.joint import SUM, Interactions
from fdml.models.losses import LOSSES, loss_named
from fdml.models.objective import Objective, objective_for
from fdml.protocol.messages import prediction_width
from fdml.settings.choices import LOSSES_OF
from fdml.settings.joint import JointSettings, scores_in
from tests.models.random_updates import CLASSES_OF, random_labels
from tests.models.test_compiled_models import Halves

JOINTS = {"sum": SUM, "fm": Interactions(3), "a product, from a test": Halves()}
SETTINGS = {
    "sum": JointSettings(),
    "fm": JointSettings(joint="fm", joint_width=3),
    "head": JointSettings(joint="head", joint_width=4, head_units=5),
}
OBJECTIVES = {
    f"{loss} of {name}": Objective(loss_named(loss), classes, joint)
    for name, joint in JOINTS.items()
    for loss, classes in CLASSES_OF.items()
} | {f"{loss} of head": objective_for(loss, classes, SETTINGS["head"]) for loss, classes in CLASSES_OF.items()}


NAMES = {id(each): name.split()[0] for name, each in OBJECTIVES.items()}


@pytest.fixture(params=OBJECTIVES.values(), ids=OBJECTIVES)
def objective(request):
    return request.param


def drawn(objective, rows=40):
    random = np.random.default_rng(3)
    return random.normal(size=(rows, objective.width)), random_labels(random, rows, NAMES[id(objective)])


@pytest.mark.parametrize("joint", JOINTS.values(), ids=JOINTS)
@pytest.mark.parametrize("scores", [1, 3])
def test_a_joint_function_makes_as_many_scores_as_it_was_asked_for(joint, scores):
    total = np.random.default_rng(1).normal(size=(5, joint.width(scores)))
    assert joint.score(total).shape == (5, scores)
    assert joint.gradient(total, np.ones((5, scores))).shape == total.shape


@pytest.mark.parametrize("joint", JOINTS.values(), ids=JOINTS)
def test_a_joint_function_takes_gradients_back_by_its_own_slope(joint):
    random = np.random.default_rng(2)
    total, towards = random.normal(size=(6, joint.width(2))), random.normal(size=(6, 2))
    gradient, shift = joint.gradient(total, towards), 1e-6
    for k in range(total.shape[1]):
        up, down = total.copy(), total.copy()
        up[:, k] += shift
        down[:, k] -= shift
        slope = ((joint.score(up) - joint.score(down)) * towards).sum(axis=1) / (2 * shift)
        np.testing.assert_allclose(gradient[:, k], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("joint", JOINTS.values(), ids=JOINTS)
def test_only_a_joint_function_whose_score_is_the_total_says_so(joint):
    total = np.random.default_rng(4).normal(size=(5, joint.width(3)))
    same = joint.width(3) == 3 and np.array_equal(joint.score(total), total)
    assert joint.is_identity == same


def test_the_value_is_one_number_a_row_and_that_of_the_loss_of_the_score(objective):
    total, labels = drawn(objective)
    assert objective.score(total).shape == (40, objective.scores)
    value = objective.value(total, labels)
    assert value.shape == (40,)
    np.testing.assert_array_equal(value, objective.loss.value(objective.score(total), labels))


def test_the_gradient_is_the_slope_of_the_value_along_every_float_that_travels(objective):
    total, labels = drawn(objective)
    gradient, shift = objective.gradient(total, labels), 1e-6
    assert gradient.shape == (40, objective.width)
    for k in range(objective.width):
        up, down = total.copy(), total.copy()
        up[:, k] += shift
        down[:, k] -= shift
        slope = (objective.value(up, labels) - objective.value(down, labels)) / (2 * shift)
        np.testing.assert_allclose(gradient[:, k], slope, rtol=1e-4, atol=1e-6)


def test_kernels_know_an_objective_only_of_sums_and_products(objective):
    known = objective.joint.is_identity or isinstance(objective.joint, Interactions)
    assert (objective.kernel_code is not None) == known
    assert objective.kernel_code in (None, objective.loss.code)


def test_the_curvature_is_that_of_the_loss(objective):
    assert objective.curvature == objective.loss.curvature > 0.0


def test_a_gradient_is_inverted_only_where_the_total_is_the_score(objective):
    total, labels = drawn(objective)
    if not objective.joint.is_identity:
        with pytest.raises(SettingsError, match=r"joint function whose score is the total; take the sum"):
            objective.invert_gradient(objective.gradient(total, labels))
    elif objective.classes and objective.loss is not LOSSES["hinge"]:
        _, shown = objective.invert_gradient(objective.gradient(total, labels))
        np.testing.assert_array_equal(shown, labels)


@pytest.mark.parametrize("task", LOSSES_OF)
@pytest.mark.parametrize("classes", [2, 3, 300])
@pytest.mark.parametrize("joint", SETTINGS.values(), ids=SETTINGS)
def test_server_and_parties_agree_on_the_width_of_a_prediction(task, classes, joint):
    """The server knows settings and classes alone; the parties go by the objective."""
    count = {"binary": 2, "multiclass": classes, "regression": 0}[task]
    for loss in LOSSES_OF[task]:
        objective = objective_for(loss, count, joint)
        assert objective.width == prediction_width(task, count, joint)
        assert scores_in(joint, objective.width) == objective.scores


def test_the_gradient_of_outputs_is_the_slope_of_the_value_along_every_output(objective):
    """Of a party whose part of the total moves with its outputs."""
    total, labels = drawn(objective)
    outputs = 0.5 * np.random.default_rng(8).normal(size=total.shape)
    others = total - objective.joint.local_prediction(outputs)
    gradient, shift = objective.output_gradient(total, labels, outputs), 1e-6
    for k in range(objective.width):
        up, down = outputs.copy(), outputs.copy()
        up[:, k] += shift
        down[:, k] -= shift
        values = [objective.value(others + objective.joint.local_prediction(each), labels) for each in (up, down)]
        np.testing.assert_allclose(gradient[:, k], (values[0] - values[1]) / (2 * shift), rtol=1e-4, atol=1e-6)
