"""Private steps: clipped as the slow twins clip, bounded for any row, and with the noise that was asked for."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.models.build import build_model
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.noise import NoiseKey
from fdml.settings import ModelSettings
from tests.models.block_updates import DTYPES, OUTPUTS_OF, Shape, random_features, random_lesson, set_parameters, stored
from tests.models.plain_models import plain_private_learn, plain_twin

pytestmark = pytest.mark.slow

KEY = NoiseKey(b"a secret of this run")
COMPILED = ["linear", "mlp"]
KINDS = [*COMPILED, "torch"]
TOLERANCE = {"single": 1e-4, "double": 1e-9}


def of_kind(kind, **values):
    return ModelSettings(**{"kind": kind, "hidden": (5, 4), "l2": 0.01, "module": "given:here", **values})


def net(inputs, outputs):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 5), torch.nn.ReLU(), torch.nn.Linear(5, outputs))


def build(wanted, width, outputs, private, *, bias=True):
    return build_model(wanted, width, outputs, bias=bias, key=(1,), module=net, private=private)


def pair(random, wanted, width, outputs, private, *, bias=True):
    """A compiled model and its twin, both at the same random parameters."""
    model = build(wanted, width, outputs, private, bias=bias)
    theta = random.normal(0.0, 0.5, len(model.parameters)).astype(model.dtype)
    set_parameters(model, theta)
    twin = plain_twin(wanted, width, outputs, bias=bias)
    twin.read(theta)
    return model, twin


def learn_both(model, twin, private, wanted, rows, x, updates):
    update = 0
    for update in updates:
        model.learn(rows, update)
        plain_private_learn(twin, private, update, wanted.l2, x.astype(np.float64), update)
        update += len(update.rates)


def assert_equal(model, twin, tolerance):
    np.testing.assert_allclose(model.parameters, twin.flat(), rtol=tolerance, atol=tolerance)


def vector(model):
    """All parameters of any model."""
    if hasattr(model, "parameters"):
        return model.parameters.astype(np.float64)
    return np.concatenate([a.ravel() for name, a in model.state().items() if name.startswith("module/")]).astype(float)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("loss", OUTPUTS_OF)
@pytest.mark.parametrize("kind", COMPILED)
def test_private_learning_equals_plain_numpy(kind, loss, form, precision):
    random = np.random.default_rng([COMPILED.index(kind), list(OUTPUTS_OF).index(loss)])
    x = random_features(random)
    rows = stored(x, form)
    wanted, private = of_kind(kind, precision=precision), DpSgd(0.8, 0.2, KEY)
    model, twin = pair(random, wanted, x.shape[1], OUTPUTS_OF[loss], private)
    updates = [random_lesson(random, loss, precision, rate=0.2) for _ in range(3)]
    learn_both(model, twin, private, wanted, rows, x, updates)
    assert_equal(model, twin, TOLERANCE[precision])


@settings(max_examples=40)
@given(
    st.builds(Shape, rows=st.integers(1, 30), width=st.integers(0, 6), start=st.just(0), batch=st.integers(1, 9)),
    st.sampled_from([("linear", (1,)), ("mlp", (3,)), ("mlp", (5, 4)), ("mlp", (4, 2, 3))]),
    st.sampled_from(list(OUTPUTS_OF)),
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
    wanted, private = of_kind(kind[0], hidden=kind[1], precision="double"), DpSgd(clip, sigma, KEY)
    model, twin = pair(random, wanted, shape.width, OUTPUTS_OF[loss], private, bias=bias)
    learn_both(model, twin, private, wanted, rows, x, [random_lesson(random, loss, "double", shape)])
    assert_equal(model, twin, 1e-9)


@pytest.mark.parametrize("kind", COMPILED)
def test_noise_reaches_the_weights_as_they_are_meant_while_strong_l2_scales_them(kind):
    random = np.random.default_rng(5)
    shape = Shape(rows=10, batch=2)
    x = random_features(random, shape)
    wanted, private = of_kind(kind, l2=0.8, precision="double"), DpSgd(0.5, 0.4, KEY)
    model, twin = pair(random, wanted, shape.width, 1, private)
    updates = [random_lesson(random, "logistic", "double", shape, rate=0.5) for _ in range(30)]
    learn_both(model, twin, private, wanted, stored(x, "sparse"), x, updates)
    assert model.state()["counters"][0] < 0.9
    assert_equal(model, twin, 1e-9)


@settings(max_examples=80)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(list(OUTPUTS_OF)),
    st.sampled_from(["sparse", "dense"]),
    st.sampled_from(list(DTYPES)),
    st.sampled_from([0.0, 1.0, 1e3, 1e10, 1e20, 1e33, 3e38, math.inf, math.nan]),
    st.sampled_from([0.0, 1.0, 1e6]),
    st.integers(0, 2**32 - 1),
)
def test_one_row_moves_an_update_by_no_more_than_two_clips(kind, loss, form, precision, size, weight, seed):
    random = np.random.default_rng(seed)
    shape, clip, count = Shape(rows=6, start=0, batch=6), 0.7, 6
    update = random_lesson(random, loss, precision, shape, rate=0.5)
    x = random_features(random, shape, density=0.9)
    other, row = x.copy(), int(random.integers(count))
    with np.errstate(over="ignore", invalid="ignore"):
        other[row] = (size * random.uniform(-1.0, 1.0, shape.width)).astype(np.float32)
    weights = update.weights.copy()
    weights[row] = weight
    ends = []
    for features, its_lesson in ((x, update), (other, update._replace(weights=weights))):
        model = build(of_kind(kind, precision=precision), shape.width, OUTPUTS_OF[loss], DpSgd(clip, 0.0, KEY))
        with np.errstate(over="ignore", invalid="ignore"):
            model.learn(stored(features, form), its_lesson)
        ends.append(vector(model))
    rounding = {"single": 1e-5, "double": 1e-12}[precision]
    assert np.linalg.norm(ends[0] - ends[1]) <= 2.0 * clip * update.rates[0] / count + rounding


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_row_counts_with_exactly_the_clip(kind):
    """The bound is no bound by accident: it is reached."""
    shape = Shape(rows=1, start=0, batch=1, width=4)
    update = random_lesson(np.random.default_rng(1), "squared", "double", shape)
    model = build(of_kind(kind, l2=0.0, precision="double"), 4, 1, DpSgd(0.25, 0.0, KEY))
    before = vector(model)
    model.learn(stored(np.full((1, 4), 1e3, np.float32), "dense"), update)
    assert np.linalg.norm(vector(model) - before) == pytest.approx(0.25 * update.rates[0], rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_has_the_deviation_asked_for_also_in_a_short_batch(kind):
    """Rows of weight 0 teach nothing, so all that moves the parameters is noise."""
    random = np.random.default_rng(3)
    shape = Shape(rows=14, start=0, batch=10, width=4000)
    sigma, rows = 2.5, stored(random_features(random, shape), "sparse")
    update = random_lesson(random, "logistic", "double", shape)
    update = update._replace(weights=np.zeros(14))
    model = build(of_kind(kind, l2=0.0, precision="double"), shape.width, 1, DpSgd(1.0, sigma, KEY))
    whole = vector(model)
    model.learn(rows, update._replace(batch_bounds=update.batch_bounds[:2], rates=update.rates[:1]))
    long = vector(model)
    model.learn(rows, update._replace(order=update.order[10:], batch_bounds=np.array([0, 4]), rates=update.rates[1:]))
    moves = (long - whole) / update.rates[0] * 10, (vector(model) - long) / update.rates[1] * 4
    for move in moves:
        assert move.std() == pytest.approx(sigma, rel=0.05)
        assert abs(move.mean()) < 0.2
    assert abs(np.corrcoef(*moves)[0, 1]) < 0.07


def test_noise_follows_from_key_and_number_alone():
    private = DpSgd(1.0, 2.0, KEY)
    np.testing.assert_array_equal(private.noise(3, 50), DpSgd(9.0, 2.0, KEY).noise(3, 50))
    assert not np.isclose(private.noise(3, 50), private.noise(4, 50)).any()
    assert not np.isclose(private.noise(3, 50), DpSgd(1.0, 2.0, NoiseKey(b"another")).noise(3, 50)).any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_key_gives_the_same_parameters_and_another_gives_others(kind):
    rows = stored(random_features(np.random.default_rng(0)), "sparse")

    def taught(key):
        model = build(of_kind(kind), 7, 1, DpSgd(0.5, 0.3, key))
        model.learn(rows, random_lesson(np.random.default_rng(1), "logistic", "single"))
        return vector(model)

    np.testing.assert_array_equal(taught(KEY), taught(KEY))
    assert not np.isclose(taught(KEY), taught(NoiseKey(b"another"))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_lesson_cut_in_two_meets_the_noise_of_the_whole(kind):
    random = np.random.default_rng(2)
    rows = stored(random_features(random), "sparse")
    update = random_lesson(random, "logistic", "double")
    whole, cut = (build(of_kind(kind, precision="double"), 7, 1, DpSgd(0.5, 0.3, KEY)) for _ in range(2))
    whole.learn(rows, update)
    at = update.batch_bounds[2]
    cut.learn(
        rows, update._replace(order=update.order[:at], batch_bounds=update.batch_bounds[:3], rates=update.rates[:2])
    )
    cut.learn(
        rows,
        update._replace(order=update.order[at:], batch_bounds=update.batch_bounds[2:] - at, rates=update.rates[2:]),
    )
    np.testing.assert_array_equal(vector(cut), vector(whole))


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("loss", OUTPUTS_OF)
@pytest.mark.parametrize("kind", KINDS)
def test_a_clip_that_no_row_reaches_and_no_noise_is_ordinary_training(kind, loss, form, precision):
    random = np.random.default_rng(4)
    rows = stored(random_features(random), form)
    updates = [random_lesson(random, loss, precision) for _ in range(2)]
    ends = []
    for private in (None, DpSgd(1e6, 0.0, KEY)):
        model = build(of_kind(kind, precision=precision), 7, OUTPUTS_OF[loss], private)
        for update in updates:
            model.learn(rows, update)
        ends.append(vector(model))
    if kind == "torch" or precision == "single":  # the compiler may round in another order where there is a clip
        np.testing.assert_allclose(*ends, rtol=TOLERANCE[precision], atol=TOLERANCE[precision])
    else:
        np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("rule", ["momentum", "adagrad", "adam"])
@pytest.mark.parametrize("kind", KINDS)
def test_rules_other_than_sgd_are_refused(kind, rule):
    with pytest.raises(
        SettingsError,
        match=rf"model.optimizer is '{rule}'.*set model.optimizer = \"sgd\", or leave \[guard.training\] out",
    ):
        build(of_kind(kind, optimizer=rule), 7, 1, DpSgd(1.0, 1.0, KEY))


def test_factorization_machines_are_refused():
    with pytest.raises(
        SettingsError, match=r"model.kind is 'fm'.*; take linear, mlp or torch, or leave \[guard.training\] out"
    ):
        build(of_kind("fm"), 7, 1, DpSgd(1.0, 1.0, KEY))


@pytest.mark.parametrize("clip", [0.0, -1.0, math.inf, math.nan])
def test_a_clip_that_bounds_nothing_is_refused(clip):
    with pytest.raises(SettingsError, match=rf"guard.training.clip is {clip}; give a positive number"):
        DpSgd(clip, 1.0, KEY)


@pytest.mark.parametrize("sigma", [-1.0, math.inf, math.nan])
def test_a_deviation_that_is_none_is_refused(sigma):
    with pytest.raises(SettingsError, match=rf"guard.training.sigma is {sigma}; give a number"):
        DpSgd(1.0, sigma, KEY)


def test_the_secret_is_not_shown():
    assert "secret" not in repr(DpSgd(1.0, 1.0, KEY))
