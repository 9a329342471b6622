"""The compiled models answer to their plain twins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.rows import drop_unit_values, span
from fdml.models.joint import Sum
from fdml.models.kernels.optimizers import RULES
from fdml.models.losses import LOSSES
from fdml.models.objective import Objective
from tests.examples import examples
from tests.models.plain_models import PlainRule, plain_learn, plain_twin
from tests.models.random_updates import (
    DTYPES,
    FORM_OF,
    FORMS_OF_DOUBLES,
    STORED,
    WIDTH_OF,
    Shape,
    build,
    random_features,
    random_update,
    set_parameters,
    settings_of,
    stored,
)

KINDS = ["linear", "fm", "mlp"]
RATE = {"sgd": 0.1, "momentum": 0.05, "adagrad": 0.1, "adam": 0.02}
TOLERANCE = {"single": 1e-4, "double": 1e-9}


def of_kind(kind, **values):
    return settings_of(kind, **{"hidden": (5, 4), "factors": 3, "l2": 0.01, "momentum": 0.8, **values})


def pair(random, wanted, inputs, width, *, bias=True):
    """A compiled model and its twin, both at the same random parameters."""
    model = build(wanted, inputs, width, bias=bias)
    theta = random.normal(0.0, 0.3, len(model.parameters)).astype(model.dtype)
    set_parameters(model, theta)
    twin = plain_twin(wanted, inputs, width, bias=bias)
    twin.read(theta)
    return model, twin


def learn_both(model, twin, wanted, rows, x, updates):
    optimizer = PlainRule(wanted.optimizer, wanted.momentum)
    for update in updates:
        model.learn(rows, *update)
        plain_learn(twin, optimizer, wanted.l2, x.astype(np.float64), *update)


def assert_equal(model, twin, rows, x, tolerance):
    np.testing.assert_allclose(model.parameters, twin.flat(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(model.predict(rows), twin.predict(x.astype(np.float64)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("form", "precision"), STORED)
@pytest.mark.parametrize("loss", WIDTH_OF)
@pytest.mark.parametrize("optimizer", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_learning_and_predicting_equal_plain_numpy(kind, optimizer, loss, form, precision):
    random = np.random.default_rng([KINDS.index(kind), RULES[optimizer], list(WIDTH_OF).index(loss)])
    x = random_features(random)
    rows = stored(x, form)
    wanted = of_kind(kind, optimizer=optimizer, precision=precision)
    model, twin = pair(random, wanted, x.shape[1], WIDTH_OF[loss])
    np.testing.assert_allclose(model.predict(rows), twin.predict(x.astype(np.float64)), rtol=1e-4, atol=1e-5)
    updates = [random_update(random, loss, precision, rate=RATE[optimizer]) for _ in range(3)]
    learn_both(model, twin, wanted, rows, x, updates)
    assert_equal(model, twin, rows, x, TOLERANCE[precision])


@pytest.mark.slow
@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_ones_are_learned_from_without_their_values(kind, loss, precision):
    random = np.random.default_rng(3)
    x = (random_features(random) > 0.5).astype(np.float32)
    rows = drop_unit_values(stored(x, "sparse"))
    assert rows.values.strides == (0,)
    wanted = of_kind(kind, precision=precision)
    model, twin = pair(random, wanted, x.shape[1], WIDTH_OF[loss])
    learn_both(model, twin, wanted, rows, x, [random_update(random, loss, precision) for _ in range(3)])
    assert_equal(model, twin, rows, x, TOLERANCE[precision])


@pytest.mark.slow
@examples(25)
@given(
    st.builds(Shape, rows=st.integers(1, 30), width=st.integers(0, 6), start=st.just(0), batch=st.integers(1, 9)),
    st.sampled_from(KINDS),
    st.sampled_from(["logistic", "softmax"]),
    st.sampled_from(["sparse", "dense"]),
    st.booleans(),
    st.floats(0.0, 4.0),
    st.integers(0, 2**32 - 1),
)
def test_any_shape_with_and_without_bias_equals_plain_numpy(shape, kind, loss, form, bias, echo, seed):
    random = np.random.default_rng(seed)
    x = random_features(random, shape)
    rows = stored(x, form)
    wanted = of_kind(kind, precision="double")
    model, twin = pair(random, wanted, shape.width, WIDTH_OF[loss], bias=bias)
    learn_both(model, twin, wanted, rows, x, [random_update(random, loss, "double", shape, echo=float(echo))])
    assert_equal(model, twin, rows, x, 1e-9)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_strong_l2_folds_the_scale_back_into_the_weights(kind, precision):
    """Compared after every three batches, so also right after a fold."""
    random = np.random.default_rng(5)
    shape = Shape(rows=10, batch=2)
    x = random_features(random, shape)
    rows = stored(x, FORM_OF[precision])
    wanted = of_kind(kind, l2=0.8, precision=precision)
    model, twin = pair(random, wanted, shape.width, 1)
    scale, folds = 1.0, 0
    for _ in range(30):
        learn_both(model, twin, wanted, rows, x, [random_update(random, "logistic", precision, shape, rate=0.5)])
        assert_equal(model, twin, rows, x, TOLERANCE[precision])
        before, scale = scale, model.state()["counters"][0]
        assert scale >= 1e-3
        folds += scale > before
    assert folds >= 3


@pytest.mark.parametrize(
    ("form", "precision"),
    [("dense", "single"), *(pytest.param(form, "double", marks=pytest.mark.slow) for form in ("sparse", "dense"))],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_label_party_without_features_learns_its_biases(kind, form, precision):
    random = np.random.default_rng(6)
    shape = Shape(width=0)
    x = random_features(random, shape)
    rows = stored(x, form)
    wanted = of_kind(kind, precision=precision)
    model, twin = pair(random, wanted, 0, 1)
    before = model.predict(rows)
    learn_both(model, twin, wanted, rows, x, [random_update(random, "logistic", precision, shape)])
    assert_equal(model, twin, rows, x, TOLERANCE[precision])
    assert not np.allclose(model.predict(rows), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_span_of_rows_serves_as_rows(kind):
    random = np.random.default_rng(7)
    x = random_features(random)
    model, _ = pair(random, of_kind(kind, precision="double"), x.shape[1], 1)
    rows = stored(x, "sparse")
    np.testing.assert_array_equal(model.predict(span(rows, 3, 9)), model.predict(rows, 3, 9))


@pytest.mark.parametrize("kind", KINDS)
def test_the_penalty_is_half_l2_times_the_squared_weights_without_biases(kind):
    random = np.random.default_rng(8)
    x = random_features(random)
    wanted = of_kind(kind, l2=0.3, precision="double")
    model, twin = pair(random, wanted, x.shape[1], 1)
    learn_both(model, twin, wanted, stored(x, "sparse"), x, [random_update(random, "logistic", "double")])
    expected = 0.15 * sum(np.square(weight).sum() for weight in twin.weights)
    assert model.penalty() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradients_of_the_twins_are_those_of_their_predictions(kind, bias):
    """The twins themselves answer to finite differences."""
    random = np.random.default_rng(9)
    x = random_features(random).astype(np.float64)
    twin = plain_twin(of_kind(kind), x.shape[1], 2, bias=bias)
    twin.read(random.normal(0.0, 0.5, len(twin.flat())))
    towards = random.normal(size=(len(x), 2))
    of_weights, of_biases = twin.gradients(x, towards)
    for parameter, gradient in zip(twin.weights + twin.biases, of_weights + of_biases, strict=True):
        assert gradient.shape == parameter.shape
        for place in np.ndindex(parameter.shape):
            value = parameter[place]
            ends = []
            for shifted in (value - 1e-6, value + 1e-6):
                parameter[place] = shifted
                ends.append((twin.predict(x) * towards).sum())
            parameter[place] = value
            assert (ends[1] - ends[0]) / 2e-6 == pytest.approx(gradient[place], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kind", ["fm", "mlp"])
def test_starting_parameters_depend_on_the_key_alone(kind):
    def start(*key):
        return build(of_kind(kind), 4, 2, key=key).parameters

    np.testing.assert_array_equal(start(7, "model", "a"), start(7, "model", "a"))
    assert not np.array_equal(start(7, "model", "a"), start(7, "model", "b"))
    assert not np.array_equal(start(7, "model", "a"), start(8, "model", "a"))


class Halves(Sum):
    """A joint function with two floats for each score, of which half the product is the score."""

    is_identity = False

    def width(self, scores):
        return 2 * scores

    def score(self, total):
        return 0.5 * total[:, ::2] * total[:, 1::2]

    def gradient(self, total, of_score):
        out = np.empty_like(total)
        out[:, ::2], out[:, 1::2] = 0.5 * of_score * total[:, 1::2], 0.5 * of_score * total[:, ::2]
        return out


JOINTS = {
    "more floats than scores": Objective(LOSSES["logistic"], 2, Halves()),
    "several scores": Objective(LOSSES["softmax"], 3, Halves()),
}


@pytest.mark.parametrize("objective", JOINTS.values(), ids=JOINTS)
@pytest.mark.parametrize("form", FORMS_OF_DOUBLES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_joint_function_that_no_kernel_knows_is_learned_by_its_gradients(kind, form, objective):
    random = np.random.default_rng(12)
    x = random_features(random)
    rows, wanted = stored(x, form), of_kind(kind, precision="double")
    model, twin = pair(random, wanted, x.shape[1], objective.width)
    updates = []
    for _ in range(2):
        block, scores = random_update(random, "logistic" if objective.classes == 2 else "softmax", "double")
        shape = (len(block.order), objective.width)
        total, own = random.normal(size=shape), random.normal(size=shape)
        updates.append((block, scores._replace(total=total, own_at_push=own, objective=objective)))
    learn_both(model, twin, wanted, rows, x, updates)
    assert_equal(model, twin, rows, x, 1e-9)
