"""What every local model must pass."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from fdml.errors import DataError
from fdml.models.head.head import Head
from fdml.models.joint import SUM, Interactions
from fdml.models.joint_model import joint_of
from fdml.models.kernels.optimizers import RULES
from fdml.models.losses import LOSSES
from fdml.models.objective import objective_for
from fdml.models.registry import kinds, ready_kinds
from fdml.models.signals import NO_ROWS, no_scores
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.noise import NoiseKey
from tests.models import random_updates
from tests.models.random_updates import DTYPES, FORM_OF, Shape, random_features, random_update, settings_of, stored

JOINTS = {"": lambda _: SUM, " under fm": lambda _: Interactions(2), " under head": lambda scores: Head(3, 4, scores)}
AVERAGED = [f"{name} averaged" for name in ("linear", "mlp", "torch", "trees+mlp")]
KINDS = [f"{kind.name}{joint}" for kind in kinds() for joint in JOINTS] + AVERAGED
COMPILED = ready_kinds()
DP_SGD_KINDS = [
    pytest.param(kind.name, marks=[pytest.mark.slow] * (kind.name == "mlp")) for kind in kinds() if kind.supports_dp_sgd
]
"""Nothing else that is not slow needs a network's kernels with a clip."""
OBJECTIVES = {1: objective_for("logistic", 2), 3: objective_for("softmax", 3)}
DP_SGD = DpSgd(clip=0.5, sigma=0.3, key=NoiseKey(b"a secret of this run"))
WIDTH = Shape().width


def net(inputs, width):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 5), torch.nn.ReLU(), torch.nn.Linear(5, width))


def build(kind, *, width=1, optimizer="sgd", precision="single", inputs=WIDTH, seed=1, dp_sgd=None, **values):
    name, under, joint = kind.partition(" under ")
    if kind in AVERAGED:
        name, values["average"] = kind.removesuffix(" averaged"), 0.9
    settings = settings_of(name, module=net, hidden=(5,), factors=3, optimizer=optimizer, precision=precision, **values)
    made = JOINTS[under + joint](width)
    return random_updates.build(settings, inputs, width, key=(seed,), dp_sgd=dp_sgd, joint=made)


def trained(model, updates=2, precision="single", rows=None, seed=4):
    random = np.random.default_rng(seed)
    rows = stored(random_features(random), "dense") if rows is None else rows
    for _ in range(updates):
        model.learn(rows, *random_update(random, "logistic", precision, rate=0.05, joint=joint_of([model])))
    return model


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def rows():
    return stored(random_features(np.random.default_rng(2)), "dense")


def assert_same_state(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("width", [1, 3])
def test_predictions_are_rows_by_width_in_the_models_precision(kind, width, precision):
    model = build(kind, width=width, precision=precision)
    predictions = model.predict(stored(random_features(np.random.default_rng(2)), FORM_OF[precision]))
    assert predictions.shape == (23, joint_of([model]).width(width))
    assert predictions.dtype == model.dtype == DTYPES[precision]


def test_predicting_a_span_equals_the_span_of_the_predictions(kind, rows):
    model = trained(build(kind))
    whole = model.predict(rows)
    for start, stop in [(0, 23), (0, 1), (5, 11), (22, 23), (7, 7)]:
        # A torch product over fewer rows may add up in another order.
        np.testing.assert_allclose(model.predict(rows, start, stop), whole[start:stop], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.predict(rows, 20), whole[20:], rtol=1e-5, atol=1e-6)


def test_predicting_changes_nothing(kind, rows):
    model = trained(build(kind, optimizer="adam"))
    before = model.state()
    model.predict(rows)
    assert_same_state(model.state(), before)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", RULES)
def test_learning_lowers_the_loss_of_a_separable_problem(kind, optimizer):
    random = np.random.default_rng(3)
    shape = Shape(rows=200, start=0, batch=10)
    x = random.normal(size=(shape.rows, shape.width)).astype(np.float32)
    labels = (x @ random.normal(size=shape.width) > 0).astype(np.float64)
    rows, model = stored(x, FORM_OF["single"]), build(kind, optimizer=optimizer)

    def loss():
        return LOSSES["logistic"].value(joint_of([model]).score(model.predict(rows)), labels).mean()

    first = loss()
    for _ in range(10):
        own = model.predict(rows)
        block, scores = random_update(random, "logistic", "single", shape, rate=0.05, echo=1.0, joint=joint_of([model]))
        model.learn(rows, block, scores._replace(total=own, own_at_push=own, labels=labels))
    assert loss() < 0.6 * first


@pytest.mark.parametrize("optimizer", RULES)
def test_a_restored_model_goes_on_bit_by_bit_as_the_one_that_was_saved(kind, optimizer, rows):
    model = trained(build(kind, optimizer=optimizer))
    twin = build(kind, optimizer=optimizer, seed=9)
    twin.restore(model.state())
    assert_same_state(twin.state(), model.state())
    trained(model, seed=5)
    trained(twin, seed=5)
    assert_same_state(twin.state(), model.state())
    np.testing.assert_array_equal(twin.predict(rows), model.predict(rows))


def test_a_gradient_that_an_older_version_saved_is_not_learnt_again(kind):
    if kind in AVERAGED:
        pytest.skip("no older version has averaged")
    model = trained(build(kind, optimizer="adam"))
    twin = build(kind, optimizer="adam", seed=9)
    old = {name: array + 1 if name == "gradient" else array for name, array in model.state().items()}
    twin.restore(old)
    assert_same_state(trained(twin, seed=5).state(), trained(model, seed=5).state())


@pytest.mark.parametrize("optimizer", RULES)
def test_a_state_from_before_the_first_update_takes_a_model_back(kind, optimizer):
    model = build(kind, optimizer=optimizer)
    fresh = model.state()
    trained(model)
    model.restore(fresh)
    assert_same_state(trained(model).state(), trained(build(kind, optimizer=optimizer)).state())


def test_a_state_shares_no_memory_with_the_model(kind, rows):
    model = trained(build(kind, optimizer="adam"))
    predictions, state = model.predict(rows), model.state()
    kept = {name: array.copy() for name, array in state.items()}
    trained(model)
    assert_same_state(state, kept)
    model.restore(state)
    for array in state.values():
        array[...] = 0
    np.testing.assert_array_equal(model.predict(rows), predictions)


def test_a_state_may_be_read_only(kind, rows):
    model = trained(build(kind, optimizer="adam"))
    state = model.state()
    for array in state.values():
        array.flags.writeable = False
    model.restore(state)
    assert not np.array_equal(trained(model).predict(rows), build(kind).predict(rows))


def test_a_state_of_another_shape_is_refused_by_name_and_changes_nothing(kind):
    model = trained(build(kind, optimizer="adam"))
    other = trained(
        build(kind, optimizer="adam", inputs=3),
        rows=stored(random_features(np.random.default_rng(0), Shape(width=3)), "dense"),
    )
    before = model.state()
    wrong = next(name for name, array in before.items() if array.shape != other.state()[name].shape)
    with pytest.raises(DataError, match=f"saved '{wrong}' has shape .*, this model needs .*; was it another model"):
        model.restore(other.state())
    assert_same_state(model.state(), before)


def test_every_array_of_a_state_is_checked_before_any_is_taken(kind):
    model = trained(build(kind, optimizer="adam"))
    before = model.state()
    for name, array in before.items():
        changed = {key: value + 1 for key, value in before.items()}
        changed[name] = np.zeros((*array.shape, 2), array.dtype)
        with pytest.raises(DataError, match=f"saved '{name}' has shape"):
            model.restore(changed)
        assert_same_state(model.state(), before)


def test_a_state_with_a_missing_array_is_refused_by_name(kind):
    model = trained(build(kind))
    before = model.state()
    missing = next(iter(before))
    with pytest.raises(DataError, match=f"saved '{missing}' has shape None"):
        model.restore({name: array + 1 for name, array in before.items() if name != missing})
    assert_same_state(model.state(), before)


def test_rows_of_another_width_are_refused(kind):
    model = build(kind)
    before = model.state()
    random = np.random.default_rng(0)
    narrow = stored(random_features(random, Shape(width=3)), "dense")
    with pytest.raises(DataError, match="rows have 3 features, the model was made for 7"):
        model.predict(narrow)
    with pytest.raises(DataError, match="rows have 3 features, the model was made for 7"):
        model.learn(narrow, *random_update(random, "logistic", "single", joint=joint_of([model])))
    assert_same_state(model.state(), before)


@pytest.mark.parametrize("optimizer", RULES)
def test_a_pass_without_rows_changes_nothing(kind, optimizer, rows):
    model = trained(build(kind, optimizer=optimizer))
    before = model.state()
    model.learn(rows, NO_ROWS, no_scores(replace(OBJECTIVES[1], joint=joint_of([model])), model.dtype))
    assert_same_state(model.state(), before)


@pytest.mark.parametrize("kind", COMPILED)
def test_a_pickled_model_predicts_and_learns_on_the_same(kind, rows):
    model = trained(build(kind, optimizer="adam"))
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(rows), model.predict(rows))
    assert_same_state(trained(copy).state(), trained(model).state())


def test_l2_lowers_the_penalty_and_none_means_no_penalty(kind):
    assert build(kind, l2=0.0).penalty() == 0.0
    strong, weak = trained(build(kind, l2=1.0)), trained(build(kind, l2=1e-3))
    assert 0.0 < strong.penalty() / 1.0 < weak.penalty() / 1e-3


@pytest.mark.parametrize("kind", DP_SGD_KINDS)
@pytest.mark.parametrize("precision", ["single", pytest.param("double", marks=pytest.mark.slow)])
def test_a_restored_model_meets_the_noise_that_the_saved_one_would_have_met(kind, precision):
    model = trained(build(kind, dp_sgd=DP_SGD, precision=precision), precision=precision)
    twin = build(kind, dp_sgd=DP_SGD, precision=precision, seed=9)
    twin.restore(model.state())
    trained(model, seed=5, precision=precision)
    trained(twin, seed=5, precision=precision)
    assert_same_state(twin.state(), model.state())


@pytest.mark.parametrize("kind", DP_SGD_KINDS)
def test_updates_with_dp_sgd_from_the_first_state_on_are_the_same_again(kind):
    model = build(kind, dp_sgd=DP_SGD)
    fresh = model.state()
    trained(model)
    model.restore(fresh)
    assert_same_state(trained(model).state(), trained(build(kind, dp_sgd=DP_SGD)).state())


@pytest.mark.parametrize("kind", DP_SGD_KINDS)
def test_every_array_of_a_state_with_dp_sgd_is_checked_before_any_is_taken(kind):
    model = trained(build(kind, dp_sgd=DP_SGD))
    before = model.state()
    for name, array in before.items():
        changed = {key: value + 1 for key, value in before.items()}
        changed[name] = np.zeros((*array.shape, 2), array.dtype)
        with pytest.raises(DataError, match=f"saved '{name}' has shape"):
            model.restore(changed)
        del changed[name]
        with pytest.raises(DataError, match=f"saved '{name}' has shape None"):
            model.restore(changed)
        assert_same_state(model.state(), before)


@pytest.mark.parametrize("kind", DP_SGD_KINDS)
def test_a_model_without_dp_sgd_keeps_the_count_of_updates_before(kind, rows):
    saved = trained(build(kind, dp_sgd=DP_SGD)).state()
    model = build(kind, seed=9)
    model.restore(saved)
    assert_same_state(model.state(), saved)
    np.testing.assert_array_equal(model.predict(rows), trained(build(kind, dp_sgd=DP_SGD)).predict(rows))


@pytest.mark.parametrize("kind", DP_SGD_KINDS)
def test_a_pass_without_rows_changes_nothing_with_dp_sgd(kind, rows):
    model = trained(build(kind, dp_sgd=DP_SGD))
    before = model.state()
    model.learn(rows, NO_ROWS, no_scores(OBJECTIVES[1], model.dtype))
    assert_same_state(model.state(), before)


@pytest.mark.parametrize("kind", DP_SGD_KINDS)
def test_a_model_without_dp_sgd_has_the_state_it_always_had(kind):
    state = trained(build(kind)).state()
    assert not any("private" in name for name in state)
    if kind != "torch":
        assert state["counters"][1] == 0.0
