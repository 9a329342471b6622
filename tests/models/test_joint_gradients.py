"""Joint functions by their formulas: pairs written out, and every slope against differences."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import DataError, SettingsError
from fdml.models.head.head import Head
from fdml.models.joint import SUM, Interactions
from fdml.models.losses import LOSSES, loss_named
from fdml.models.objective import Objective, joint_for, objective_for
from fdml.models.signals import Scores
from fdml.settings.joint import JointSettings, scores_in
from tests.models.random_updates import CLASSES_OF, WIDTH_OF, build, random_labels, settings_of

ROWS = 12
SMOOTH = [loss for loss in CLASSES_OF if loss != "hinge"]


def joints(scores):
    return {"sum": SUM, "fm": Interactions(2), "head": Head(2, 4, scores, seed=3)}


@given(parties=st.integers(1, 5), scores=st.integers(1, 4), vector=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_the_score_has_the_product_of_every_pair_of_parties_and_no_square(parties, scores, vector, seed):
    joint = Interactions(vector)
    outputs = np.random.default_rng(seed).normal(size=(parties, 3, joint.width(scores)))
    wanted = outputs[:, :, :scores].sum(axis=0)
    for one, other in combinations(outputs, 2):
        for score in range(scores):
            columns = slice(scores + score * vector, scores + (score + 1) * vector)
            wanted[:, score] += (one[:, columns] * other[:, columns]).sum(axis=1)
    total = sum(joint.local_prediction(each) for each in outputs)
    np.testing.assert_allclose(joint.score(total), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["sum", "fm", "head"])
@pytest.mark.parametrize("loss", SMOOTH)
def test_the_gradient_by_the_total_is_the_slope_of_the_loss(name, loss):
    random = np.random.default_rng(1)
    objective = Objective(loss_named(loss), CLASSES_OF[loss], joints(WIDTH_OF[loss])[name])
    total, labels = random.normal(size=(ROWS, objective.width)), random_labels(random, ROWS, loss)
    found = objective.gradient(total, labels)
    for column, step in enumerate(1e-6 * np.eye(objective.width)):
        slopes = (objective.value(total + step, labels) - objective.value(total - step, labels)) / 2e-6
        np.testing.assert_allclose(found[:, column], slopes, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["sum", "fm", "head"])
@pytest.mark.parametrize("loss", SMOOTH)
def test_what_a_party_learns_from_is_the_slope_of_the_loss_by_its_outputs(name, loss):
    """Two parties, of which one moves after the push: with an echo of 1 its signal is the whole chain rule."""
    random = np.random.default_rng(2)
    objective = Objective(loss_named(loss), CLASSES_OF[loss], joints(WIDTH_OF[loss])[name])
    other, pushed, now = random.normal(size=(3, ROWS, objective.width))
    labels, weights = random_labels(random, ROWS, loss), random.uniform(0.5, 1.5, ROWS)
    sent = objective.joint.local_prediction
    signal = Scores(sent(other) + sent(pushed), sent(pushed), labels, weights, 1.0, objective)
    found = signal.gradient(np.arange(ROWS), now)

    def value(outputs):
        return weights * objective.value(sent(other) + sent(outputs), labels)

    for column, step in enumerate(1e-6 * np.eye(objective.width)):
        slopes = (value(now + step) - value(now - step)) / 2e-6
        np.testing.assert_allclose(found[:, column], slopes, rtol=1e-5, atol=1e-7)


def test_the_slope_by_a_vector_is_that_of_the_others_vectors_alone():
    """dLoss/du_j = g (S - u_j): a party alone has nothing to learn of its vector."""
    objective = Objective(LOSSES["squared"], 0, Interactions(3))
    outputs, labels = np.random.default_rng(3).normal(size=(ROWS, 4)), np.zeros(ROWS)
    found = objective.output_gradient(objective.joint.local_prediction(outputs), labels, outputs)
    assert found[:, 0].all()
    np.testing.assert_allclose(found[:, 1:], 0.0, atol=1e-12)


@pytest.mark.parametrize(("loss", "classes", "scores"), [("logistic", 2, 1), ("squared", 0, 1), ("softmax", 5, 5)])
@pytest.mark.parametrize("joint", ["sum", "fm", "head"])
def test_what_travels_has_a_float_and_a_vector_for_each_score_or_one_vector_for_the_head(joint, loss, classes, scores):
    training = JointSettings(joint=joint, joint_width=3) if joint != "sum" else JointSettings()
    expected = {"sum": scores, "fm": scores * 4, "head": scores + 3}[joint]
    objective = objective_for(loss, classes, training)
    assert objective.width == expected
    assert objective.score(np.zeros((2, expected))).shape == (2, scores)
    assert scores_in(training, expected) == scores


def test_curvatures_are_those_of_the_loss_at_the_score():
    random = np.random.default_rng(4)
    for joint in joints(3).values():
        objective = Objective(LOSSES["softmax"], 3, joint)
        total, labels = random.normal(size=(ROWS, objective.width)), random_labels(random, ROWS, "softmax")
        expected = LOSSES["softmax"].curvatures(objective.score(total), labels)
        np.testing.assert_array_equal(objective.curvatures(total, labels), expected)


@pytest.mark.parametrize("name", ["fm", "head"])
def test_a_gradient_of_vectors_does_not_stand_for_private_labels(name):
    objective = Objective(LOSSES["logistic"], 2, joints(1)[name])
    with pytest.raises(SettingsError, match="take the sum"):
        objective.invert_gradient(np.zeros((2, objective.width)))


def test_heads_of_one_seed_are_equal_and_of_their_own():
    training = JointSettings(joint="head", joint_width=3)
    one, twin, other = (joint_for(training, 1, seed) for seed in (1, 1, 2))
    assert one is not twin
    np.testing.assert_array_equal(one.state()["theta"], twin.state()["theta"])
    assert not np.array_equal(one.state()["theta"], other.state()["theta"])


@pytest.mark.parametrize("wrong", ["model", "head"])
def test_a_model_that_cannot_be_restored_leaves_the_head_as_it_was(wrong):
    model = build(settings_of("linear"), 4, 1, joint=Head(2, 4, 1, seed=1))
    before = {name: array.copy() for name, array in model.state().items()}
    sizes = {"model": (5, 4), "head": (4, 6)}[wrong]
    other = build(settings_of("linear"), sizes[0], 1, joint=Head(2, sizes[1], 1, seed=2))
    with pytest.raises(DataError, match="was it another model"):
        model.restore(other.state())
    for name, array in model.state().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


def test_under_fm_a_models_state_and_penalty_are_those_of_its_kind():
    model = build(settings_of("mlp", hidden=(3,), l2=0.1), 4, 1, joint=Interactions(2))
    assert model.state().keys() == model.outputs.state().keys()
    assert model.penalty() == model.outputs.penalty() > 0.0
    assert (model.dtype, model.concurrent) == (model.outputs.dtype, model.outputs.concurrent)
