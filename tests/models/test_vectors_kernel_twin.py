"""The kernels of a factorization machine that shows its factors, against a slow twin in plain numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import DataError
from fdml.models.joint import Interactions
from fdml.models.kernels.optimizers import RULES
from tests.examples import examples
from tests.models.plain_models import PlainFm, PlainRule
from tests.models.random_updates import (
    DTYPES,
    FORM_OF,
    WIDTH_OF,
    Shape,
    build,
    random_features,
    random_update,
    set_parameters,
    settings_of,
    stored,
)

FACTORS = 3
JOINT = Interactions(FACTORS)
RATE = {"sgd": 0.02, "momentum": 0.003, "adagrad": 0.1, "adam": 0.02}
TOLERANCE = {"single": 2e-4, "double": 1e-9}


class PlainVectors(PlainFm):
    """A factorization machine whose outputs are its scores and then, score by score, its sums of factors."""

    def predict(self, x):
        sums = np.einsum("ni,ikf->nkf", x, self.weights[1])
        return np.concatenate([super().predict(x), sums.reshape(len(x), -1)], axis=1)

    def gradients(self, x, gradient):
        of_sums = gradient[:, self.width :].reshape(len(x), self.width, self.factors)
        (linear, pairs), biases = super().gradients(x, gradient[:, : self.width])
        return [linear, pairs + np.einsum("ni,nkf->ikf", x, of_sums)], biases


def pair(random, wanted, inputs, scores, *, bias=True):
    """The kernels' model and its twin, both at the same random parameters."""
    model = build(wanted, inputs, scores, bias=bias, joint=JOINT).outputs
    theta = random.normal(0.0, 0.3, len(model.parameters)).astype(model.dtype)
    set_parameters(model, theta)
    twin = PlainVectors(inputs, scores, bias=bias, factors=FACTORS)
    twin.read(theta)
    return model, twin


def learn_both(model, twin, wanted, rows, x, updates):
    rule = PlainRule(wanted.optimizer, wanted.momentum)
    for block, scores in updates:
        model.learn(rows, block, scores)
        for number, rate in enumerate(block.rates):
            chosen = block.batch(number)
            features = x[block.start + chosen].astype(np.float64)
            each = scores.gradient(chosen, twin.predict(features))
            of_weights, of_biases = twin.gradients(features, each / len(chosen))
            shrunk = [gradient + wanted.l2 * weight for gradient, weight in zip(of_weights, twin.weights, strict=True)]
            rule.apply(twin.weights + twin.biases, shrunk + of_biases, rate)


def assert_equal(model, twin, rows, x, tolerance):
    np.testing.assert_allclose(model.parameters, twin.flat(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(model.predict(rows), twin.predict(x.astype(np.float64)), rtol=tolerance, atol=tolerance)


def wanted_of(**values):
    return settings_of("linear", **{"l2": 0.01, "momentum": 0.8, "precision": "double", **values})


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("loss", WIDTH_OF)
@pytest.mark.parametrize("optimizer", RULES)
def test_two_passes_are_those_of_the_twin(optimizer, loss, precision):
    random = np.random.default_rng([RULES[optimizer], list(WIDTH_OF).index(loss)])
    x, wanted = random_features(random), wanted_of(optimizer=optimizer, precision=precision)
    model, twin = pair(random, wanted, x.shape[1], WIDTH_OF[loss])
    rows = stored(x, FORM_OF[precision])
    assert_equal(model, twin, rows, x, 1e-5)
    updates = [random_update(random, loss, precision, rate=RATE[optimizer], joint=JOINT) for _ in range(2)]
    learn_both(model, twin, wanted, rows, x, updates)
    assert_equal(model, twin, rows, x, TOLERANCE[precision])


@pytest.mark.slow
@examples(20)
@given(
    shape=st.builds(Shape, rows=st.integers(1, 20), width=st.integers(0, 5), start=st.just(0), batch=st.integers(1, 7)),
    form=st.sampled_from(["sparse", "dense"]),
    bias=st.booleans(),
    echo=st.floats(0.0, 3.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape_with_and_without_bias_is_that_of_the_twin(shape, form, bias, echo, seed):
    random = np.random.default_rng(seed)
    x, wanted = random_features(random, shape), wanted_of()
    model, twin = pair(random, wanted, shape.width, 1, bias=bias)
    rows = stored(x, form)
    update = random_update(random, "logistic", "double", shape, rate=0.1, echo=echo, joint=JOINT)
    learn_both(model, twin, wanted, rows, x, [update])
    assert_equal(model, twin, rows, x, 1e-9)


def test_strong_l2_folds_the_scale_back_into_weights_and_factors():
    random, shape = np.random.default_rng(5), Shape(rows=10, batch=2)
    x, wanted = random_features(random, shape), wanted_of(l2=0.8)
    model, twin = pair(random, wanted, shape.width, 1)
    rows, scales = stored(x, "sparse"), []
    for _ in range(12):
        update = random_update(random, "logistic", "double", shape, rate=0.5, joint=JOINT)
        learn_both(model, twin, wanted, rows, x, [update])
        assert_equal(model, twin, rows, x, 1e-9)
        scales.append(model.state()["counters"][0])
    assert (np.diff(scales) > 0).any(), "it was folded"


def test_the_twins_gradients_are_the_slopes_of_its_outputs():
    random = np.random.default_rng(9)
    x, towards = random_features(random).astype(np.float64), random.normal(size=(23, JOINT.width(2)))
    twin = PlainVectors(x.shape[1], 2, bias=True, factors=FACTORS)
    theta = random.normal(0.0, 0.5, len(twin.flat()))
    twin.read(theta)
    of_weights, of_biases = twin.gradients(x, towards)
    moved = PlainVectors(x.shape[1], 2, bias=True, factors=FACTORS)
    moved.weights, moved.biases = of_weights, of_biases
    found, slopes = moved.flat(), np.empty(len(theta))
    for at, step in enumerate(1e-6 * np.eye(len(theta))):
        ends = []
        for point in (theta - step, theta + step):
            moved.read(point)
            ends.append((moved.predict(x) * towards).sum())
        slopes[at] = (ends[1] - ends[0]) / 2e-6
    np.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-6)


def test_a_pass_leaves_no_trace_in_what_the_next_one_collects():
    """The kernels' scratch is shared by all passes: a pass that teaches nothing before changes no bit after."""
    random = np.random.default_rng(4)
    x, wanted = random_features(random), wanted_of(l2=0.0)
    (model, _), (other, _) = (pair(np.random.default_rng(3), wanted, x.shape[1], 1) for _ in range(2))
    rows = stored(x, "sparse")
    block, scores = random_update(random, "logistic", "double", joint=JOINT)
    model.learn(rows, block._replace(rates=np.zeros(len(block.rates))), scores)
    for each in (model, other):
        each.learn(rows, block, scores)
    assert model.parameters.tobytes() == other.parameters.tobytes()


def test_parameters_of_another_number_of_factors_are_refused():
    model = build(wanted_of(), 4, 1, joint=JOINT)
    with pytest.raises(DataError, match="was it another model"):
        model.restore(build(wanted_of(), 4, 1, joint=Interactions(2)).state())
