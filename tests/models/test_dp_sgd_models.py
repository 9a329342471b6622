"""Models trained with DP-SGD: clipped as the slow twins clip, bounded for any row, with the noise asked for."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.noise import NoiseKey
from tests.examples import examples
from tests.models import random_updates
from tests.models.plain_models import plain_dp_sgd, plain_twin
from tests.models.random_updates import (
    DTYPES,
    WIDTH_OF,
    Shape,
    random_features,
    random_update,
    set_parameters,
    settings_of,
    stored,
)

pytestmark = pytest.mark.slow

KEY = NoiseKey(b"a secret of this run")
COMPILED = ["linear", "mlp"]
KINDS = [*COMPILED, "torch"]
TOLERANCE = {"single": 1e-4, "double": 1e-9}


def of_kind(kind, **values):
    return settings_of(kind, **{"hidden": (5, 4), "l2": 0.01, "module": net, **values})


def net(inputs, width):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 5), torch.nn.ReLU(), torch.nn.Linear(5, width))


def build(wanted, inputs, width, dp_sgd, *, bias=True):
    return random_updates.build(wanted, inputs, width, bias=bias, key=(1,), dp_sgd=dp_sgd)


def pair(random, wanted, inputs, width, dp_sgd, *, bias=True):
    """A compiled model and its twin, both at the same random parameters."""
    model = build(wanted, inputs, width, dp_sgd, bias=bias)
    theta = random.normal(0.0, 0.5, len(model.parameters)).astype(model.dtype)
    set_parameters(model, theta)
    twin = plain_twin(wanted, inputs, width, bias=bias)
    twin.read(theta)
    return model, twin


def learn_both(model, twin, dp_sgd, wanted, rows, x, updates):
    number = 0
    for update in updates:
        model.learn(rows, *update)
        plain_dp_sgd(twin, dp_sgd, update, wanted.l2, x.astype(np.float64), number)
        number += len(update[0].rates)


def assert_equal(model, twin, tolerance):
    np.testing.assert_allclose(model.parameters, twin.flat(), rtol=tolerance, atol=tolerance)


def vector(model):
    """All parameters of any model."""
    if hasattr(model, "parameters"):
        return model.parameters.astype(np.float64)
    return np.concatenate([a.ravel() for name, a in model.state().items() if name.startswith("module/")]).astype(float)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("loss", WIDTH_OF)
@pytest.mark.parametrize("kind", COMPILED)
def test_learning_with_dp_sgd_equals_plain_numpy(kind, loss, form, precision):
    random = np.random.default_rng([COMPILED.index(kind), list(WIDTH_OF).index(loss)])
    x = random_features(random)
    rows = stored(x, form)
    wanted, dp_sgd = of_kind(kind, precision=precision), DpSgd(0.8, 0.2, KEY)
    model, twin = pair(random, wanted, x.shape[1], WIDTH_OF[loss], dp_sgd)
    updates = [random_update(random, loss, precision, rate=0.2) for _ in range(3)]
    learn_both(model, twin, dp_sgd, wanted, rows, x, updates)
    assert_equal(model, twin, TOLERANCE[precision])


@examples(40)
@given(
    st.builds(Shape, rows=st.integers(1, 30), width=st.integers(0, 6), start=st.just(0), batch=st.integers(1, 9)),
    st.sampled_from([("linear", (1,)), ("mlp", (3,)), ("mlp", (5, 4)), ("mlp", (4, 2, 3))]),
    st.sampled_from(list(WIDTH_OF)),
    st.sampled_from(["sparse", "dense"]),
    st.booleans(),
    st.sampled_from([1e-3, 0.1, 0.5, 1.0, 2.0, 10.0]),
    st.sampled_from([0.0, 0.1, 3.0]),
    st.integers(0, 2**32 - 1),
)
def test_any_shape_clip_and_noise_equal_plain_numpy(shape, kind, loss, form, bias, clip, sigma, seed):
    random = np.random.default_rng(seed)
    x = random_features(random, shape)
    rows = stored(x, form)
    wanted, dp_sgd = of_kind(kind[0], hidden=kind[1], precision="double"), DpSgd(clip, sigma, KEY)
    model, twin = pair(random, wanted, shape.width, WIDTH_OF[loss], dp_sgd, bias=bias)
    learn_both(model, twin, dp_sgd, wanted, rows, x, [random_update(random, loss, "double", shape)])
    assert_equal(model, twin, 1e-9)


@pytest.mark.parametrize("kind", COMPILED)
def test_noise_reaches_the_weights_as_they_are_meant_while_strong_l2_scales_them(kind):
    random = np.random.default_rng(5)
    shape = Shape(rows=10, batch=2)
    x = random_features(random, shape)
    wanted, dp_sgd = of_kind(kind, l2=0.8, precision="double"), DpSgd(0.5, 0.4, KEY)
    model, twin = pair(random, wanted, shape.width, 1, dp_sgd)
    updates = [random_update(random, "logistic", "double", shape, rate=0.5) for _ in range(30)]
    learn_both(model, twin, dp_sgd, wanted, stored(x, "sparse"), x, updates)
    assert model.state()["counters"][0] < 0.9
    assert_equal(model, twin, 1e-9)


@examples(80)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(list(WIDTH_OF)),
    st.sampled_from(["sparse", "dense"]),
    st.sampled_from(list(DTYPES)),
    st.sampled_from([0.0, 1.0, 1e3, 1e10, 1e20, 1e33, 3e38, math.inf, math.nan]),
    st.sampled_from([0.0, 1.0, 1e6]),
    st.integers(0, 2**32 - 1),
)
def test_one_row_moves_an_update_by_no_more_than_two_clips(kind, loss, form, precision, size, weight, seed):
    random = np.random.default_rng(seed)
    shape, clip, count = Shape(rows=6, start=0, batch=6), 0.7, 6
    block, scores = random_update(random, loss, precision, shape, rate=0.5)
    x = random_features(random, shape, density=0.9)
    other, row = x.copy(), int(random.integers(count))
    with np.errstate(over="ignore", invalid="ignore"):
        other[row] = (size * random.uniform(-1.0, 1.0, shape.width)).astype(np.float32)
    weights = scores.weights.copy()
    weights[row] = weight
    ends = []
    for features, signal in ((x, scores), (other, scores._replace(weights=weights))):
        model = build(of_kind(kind, precision=precision), shape.width, WIDTH_OF[loss], DpSgd(clip, 0.0, KEY))
        with np.errstate(over="ignore", invalid="ignore"):
            model.learn(stored(features, form), block, signal)
        ends.append(vector(model))
    rounding = {"single": 1e-5, "double": 1e-12}[precision]
    assert np.linalg.norm(ends[0] - ends[1]) <= 2.0 * clip * block.rates[0] / count + rounding


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_row_counts_with_exactly_the_clip(kind):
    """The bound is no bound by accident: it is reached."""
    shape = Shape(rows=1, start=0, batch=1, width=4)
    block, scores = random_update(np.random.default_rng(1), "squared", "double", shape)
    model = build(of_kind(kind, l2=0.0, precision="double"), 4, 1, DpSgd(0.25, 0.0, KEY))
    before = vector(model)
    model.learn(stored(np.full((1, 4), 1e3, np.float32), "dense"), block, scores)
    assert np.linalg.norm(vector(model) - before) == pytest.approx(0.25 * block.rates[0], rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_has_the_deviation_asked_for_also_in_a_short_batch(kind):
    """Rows of weight 0 change nothing, so all that moves the parameters is noise."""
    random = np.random.default_rng(3)
    shape = Shape(rows=14, start=0, batch=10, width=4000)
    sigma, rows = 2.5, stored(random_features(random, shape), "sparse")
    block, scores = random_update(random, "logistic", "double", shape)
    scores = scores._replace(weights=np.zeros(14))
    model = build(of_kind(kind, l2=0.0, precision="double"), shape.width, 1, DpSgd(1.0, sigma, KEY))
    whole = vector(model)
    model.learn(rows, block._replace(batch_bounds=block.batch_bounds[:2], rates=block.rates[:1]), scores)
    long = vector(model)
    short = block._replace(order=block.order[10:], batch_bounds=np.array([0, 4]), rates=block.rates[1:])
    model.learn(rows, short, scores)
    moves = (long - whole) / block.rates[0] * 10, (vector(model) - long) / block.rates[1] * 4
    for move in moves:
        assert move.std() == pytest.approx(sigma, rel=0.05)
        assert abs(move.mean()) < 0.2
    assert abs(np.corrcoef(*moves)[0, 1]) < 0.07


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_key_gives_the_same_parameters_and_another_gives_others(kind):
    rows = stored(random_features(np.random.default_rng(0)), "sparse")

    def parameters(key):
        model = build(of_kind(kind), 7, 1, DpSgd(0.5, 0.3, key))
        model.learn(rows, *random_update(np.random.default_rng(1), "logistic", "single"))
        return vector(model)

    np.testing.assert_array_equal(parameters(KEY), parameters(KEY))
    assert not np.isclose(parameters(KEY), parameters(NoiseKey(b"another"))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_cut_in_two_meets_the_noise_of_the_whole(kind):
    random = np.random.default_rng(2)
    rows = stored(random_features(random), "sparse")
    block, scores = random_update(random, "logistic", "double")
    whole, cut = (build(of_kind(kind, precision="double"), 7, 1, DpSgd(0.5, 0.3, KEY)) for _ in range(2))
    whole.learn(rows, block, scores)
    at = block.batch_bounds[2]
    first = block._replace(order=block.order[:at], batch_bounds=block.batch_bounds[:3], rates=block.rates[:2])
    second = block._replace(order=block.order[at:], batch_bounds=block.batch_bounds[2:] - at, rates=block.rates[2:])
    cut.learn(rows, first, scores)
    cut.learn(rows, second, scores)
    np.testing.assert_array_equal(vector(cut), vector(whole))


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("loss", WIDTH_OF)
@pytest.mark.parametrize("kind", KINDS)
def test_a_clip_that_no_row_reaches_and_no_noise_is_ordinary_training(kind, loss, form, precision):
    random = np.random.default_rng(4)
    rows = stored(random_features(random), form)
    updates = [random_update(random, loss, precision) for _ in range(2)]
    ends = []
    for dp_sgd in (None, DpSgd(1e6, 0.0, KEY)):
        model = build(of_kind(kind, precision=precision), 7, WIDTH_OF[loss], dp_sgd)
        for update in updates:
            model.learn(rows, *update)
        ends.append(vector(model))
    # Where there is a clip the compiler may add in another order; which, depends on the processor.
    tolerance = TOLERANCE[precision] if kind == "torch" or precision == "single" else 1e-14
    np.testing.assert_allclose(*ends, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("optimizer", ["momentum", "adagrad", "adam"])
@pytest.mark.parametrize("kind", KINDS)
def test_optimizers_other_than_sgd_are_refused(kind, optimizer):
    with pytest.raises(
        SettingsError,
        match=rf"model.optimizer is '{optimizer}'.*set model.optimizer = \"sgd\", or leave \[guard.training\] out",
    ):
        build(of_kind(kind, optimizer=optimizer), 7, 1, DpSgd(1.0, 1.0, KEY))


def test_factorization_machines_are_refused():
    with pytest.raises(
        SettingsError, match=r"model.kind is 'fm'.*; take linear, mlp or torch, or leave \[guard.training\] out"
    ):
        build(of_kind("fm"), 7, 1, DpSgd(1.0, 1.0, KEY))
