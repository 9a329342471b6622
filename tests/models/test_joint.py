"""Vectors of different parties that interact: the formulas, and the kernels that follow them."""

import numpy as np
import pytest

from fdml.errors import SettingsError
from fdml.models.joint import SUM, Interactions
from fdml.models.joint_model import JointModel, joint_of
from fdml.models.losses import loss_named
from fdml.models.objective import Objective
from fdml.models.registry import resolved_model
from fdml.models.vectors.machine import VectorMachine
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.noise import NoiseKey
from tests.models.random_updates import (
    CLASSES_OF,
    DTYPES,
    FORM_OF,
    FORMS_OF_DOUBLES,
    WIDTH_OF,
    build,
    random_features,
    random_update,
    set_parameters,
    settings_of,
    stored,
)

FM = Interactions(3)
KINDS = ["linear", "fm", "mlp"]
TOLERANCE = {"single": 1e-4, "double": 1e-9}


class Unknown(Interactions):
    """The same joint function, which kernels do not know: they are given gradients."""

    factors = 0


def of_kind(kind, **values):
    return settings_of(kind, **{"hidden": (5, 4), "l2": 0.01, **values})


def parties_of(random, scores=1, parties=3, rows=6):
    return [random.normal(size=(rows, FM.width(scores))) for _ in range(parties)]


@pytest.mark.parametrize("scores", [1, 3])
def test_the_score_is_what_each_party_scores_alone_and_the_products_of_all_pairs_of_vectors(scores):
    outputs = parties_of(np.random.default_rng(1), scores)
    found = FM.score(sum(FM.local_prediction(each) for each in outputs))
    wanted = sum(each[:, :scores] for each in outputs)
    vectors = [each[:, scores:].reshape(-1, scores, 3) for each in outputs]
    for first in range(3):
        for second in range(first):
            wanted = wanted + (vectors[first] * vectors[second]).sum(axis=2)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_one_party_alone_scores_its_first_output():
    outputs = parties_of(np.random.default_rng(2), 2)[0]
    np.testing.assert_allclose(FM.score(FM.local_prediction(outputs)), outputs[:, :2], rtol=1e-12, atol=1e-12)


def test_no_output_makes_no_prediction():
    nothing = np.zeros((2, FM.width(1)))
    np.testing.assert_array_equal(FM.local_prediction(nothing), nothing)


def test_a_row_is_predicted_the_same_among_any_others():
    outputs = np.random.default_rng(3).normal(size=(50, FM.width(2))).astype(np.float32)
    whole = FM.local_prediction(outputs)
    for row in range(50):
        np.testing.assert_array_equal(FM.local_prediction(outputs[row : row + 1])[0], whole[row])


def test_a_prediction_is_another_array_than_the_outputs():
    outputs = np.ones((1, 4))
    FM.local_prediction(outputs)
    assert (outputs == 1.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("loss", WIDTH_OF)
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_follow_the_formulas(kind, loss, precision):
    """The kernels' own chain rule against that of plain numpy, which gives them gradients batch by batch."""
    random = np.random.default_rng([KINDS.index(kind), list(WIDTH_OF).index(loss)])
    rows = stored(random_features(random), FORM_OF[precision])
    models = [build(of_kind(kind, precision=precision), 7, WIDTH_OF[loss], joint=FM) for _ in range(2)]
    theta = random.normal(0.0, 0.3, len(models[0].state()["theta"]))
    for model in models:
        set_parameters(model, theta)
    block, scores = random_update(random, loss, precision, rate=0.05, joint=FM)
    models[0].learn(rows, block, scores)
    slow = scores._replace(objective=Objective(loss_named(loss), CLASSES_OF[loss], Unknown(3)))
    assert slow.objective.kernel_code is None
    models[1].learn(rows, block, slow)
    fast, slow = (model.state()["theta"] for model in models)
    assert not np.array_equal(fast, theta)
    np.testing.assert_allclose(fast, slow, rtol=TOLERANCE[precision], atol=TOLERANCE[precision])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS_OF_DOUBLES)
def test_the_updates_of_a_linear_party_are_those_of_its_outputs(form):
    """One batch against the slope of a sum of outputs, parameter by parameter."""
    random = np.random.default_rng(5)
    x = random_features(random)
    rows = stored(x, form)
    model = build(of_kind("linear", precision="double", l2=0.0, optimizer="sgd"), 7, 2, joint=FM).outputs
    theta = random.normal(0.0, 0.3, len(model.state()["theta"]))
    set_parameters(model, theta)
    towards = random.normal(size=(23, 8))

    def value(point):
        set_parameters(model, point)
        return float((model.predict(rows) * towards).sum())

    slopes = []
    for at in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[at], down[at] = up[at] + 1e-6, down[at] - 1e-6
        slopes.append((value(up) - value(down)) / 2e-6)
    set_parameters(model, theta)
    learned = _learned_towards(model, rows, towards, rate=1e-3)
    np.testing.assert_allclose((theta - learned) / 1e-3, slopes, rtol=1e-4, atol=1e-6)


def _learned_towards(model, rows, towards, rate):
    """The parameters after one step against these gradients of the outputs."""
    block, scores = random_update(np.random.default_rng(0), "squared", "double", joint=Given(towards))
    whole = block._replace(start=0, order=np.arange(23), batch_bounds=np.array([0, 23]), rates=np.array([rate]))
    nothing = np.zeros_like(towards)
    scores = scores._replace(total=nothing, own_at_push=nothing, labels=np.zeros(23), weights=np.full(23, 23.0))
    model.learn(rows, whole, scores)
    return model.state()["theta"]


class Given(Interactions):
    """A joint function whose gradient of outputs is told."""

    factors = 0

    def __init__(self, towards):
        super().__init__(3)
        object.__setattr__(self, "towards", towards)

    def output_gradient(self, outputs, of_prediction):
        return self.towards


def test_a_linear_party_is_a_factorization_machine_whose_sums_of_factors_are_its_vector():
    random = np.random.default_rng(6)
    x = random_features(random)
    model = build(of_kind("linear", precision="double"), 7, 1, joint=FM)
    assert isinstance(model, JointModel)
    assert isinstance(model.outputs, VectorMachine)
    theta = random.normal(size=7 * 4 + 1)
    set_parameters(model, theta)
    weights, factors = theta[:28].reshape(7, 4)[:, 0], theta[:28].reshape(7, 4)[:, 1:]
    vector = x @ factors
    alone = theta[28] + x @ weights + 0.5 * (vector**2 - (x**2) @ factors**2).sum(axis=1)
    outputs = model.outputs.predict(stored(x, "sparse"))
    np.testing.assert_allclose(outputs, np.column_stack([alone, vector]), rtol=1e-6, atol=1e-6)
    sent = model.predict(stored(x, "sparse"))
    np.testing.assert_allclose(sent[:, 0], alone - 0.5 * (vector**2).sum(axis=1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["linear", "fm"])
def test_linear_and_fm_are_the_same_where_the_run_has_vectors(kind):
    made = build(of_kind(kind, factors=5), 7, 1, joint=FM)
    assert made.state()["theta"].shape == (7 * 4 + 1,)


def test_vectors_begin_small_and_scores_as_they_were():
    plain = build(of_kind("mlp", hidden=(5,)), 7, 4).state()["theta"]
    under = build(of_kind("mlp", hidden=(5,)), 7, 1, joint=FM).outputs.state()["theta"]
    np.testing.assert_allclose(under[35:40], plain[35:40])
    np.testing.assert_allclose(under[40:55], 0.3 * plain[40:55], rtol=1e-6)


def test_a_linear_party_with_noise_in_training_is_refused_with_what_to_take():
    noise = DpSgd(clip=0.5, sigma=0.3, key=NoiseKey(b"a secret of this run"))
    with pytest.raises(SettingsError, match=r"'linear' under training.joint = \"fm\"; take mlp or torch"):
        build(settings_of("linear"), 7, 1, joint=FM, dp_sgd=noise)


def test_a_penalty_by_rule_is_that_of_nets_where_vectors_interact():
    settings = of_kind("linear", l2="auto")
    assert resolved_model(settings, 400, vectors=True).weight_decay == pytest.approx(0.15 / 20)
    assert resolved_model(settings, 400).weight_decay == pytest.approx(1 / 400)


def test_models_say_what_becomes_of_their_sum():
    assert joint_of([build(of_kind("linear"), 7, 1)]) is SUM
    assert joint_of([build(of_kind("linear"), 7, 1, joint=FM)]) is FM
    assert SUM.local_prediction(theirs := np.ones((1, 1))) is theirs
    assert SUM.output_gradient(theirs, of_prediction=theirs) is theirs
    assert SUM.starting_scale(2).tolist() == [1.0, 1.0]
