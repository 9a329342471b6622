"""What every local model must pass."""

import pickle

import numpy as np
import pytest
import torch

from fdml.errors import DataError
from fdml.models.build import build_model
from fdml.models.compiled import RULES
from fdml.models.kernels import empty_update
from fdml.models.losses import LOSSES
from fdml.privacy.dp_sgd import KINDS as PRIVATE_KINDS
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.noise import NoiseKey
from fdml.settings import ModelSettings
from tests.models.block_updates import DTYPES, Shape, random_features, random_lesson, stored

KINDS = ["linear", "fm", "mlp", "torch"]
COMPILED = ["linear", "fm", "mlp"]
PRIVATE = DpSgd(clip=0.5, sigma=0.3, key=NoiseKey(b"a secret of this run"))
WIDTH = Shape().width


def net(inputs, outputs):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 5), torch.nn.ReLU(), torch.nn.Linear(5, outputs))


def build(kind, *, outputs=1, optimizer="sgd", precision="single", inputs=WIDTH, seed=1, private=None, **values):
    wanted = ModelSettings(
        kind=kind, module="unused:unused", hidden=(5,), factors=3, optimizer=optimizer, precision=precision, **values
    )
    torch.manual_seed(seed)
    return build_model(wanted, inputs, outputs, bias=True, key=(seed,), module=net, private=private)


def taught(model, updates=2, precision="single", rows=None, seed=4):
    random = np.random.default_rng(seed)
    rows = stored(random_features(random), "sparse") if rows is None else rows
    for _ in range(updates):
        model.learn(rows, random_lesson(random, "logistic", precision, rate=0.05))
    return model


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def rows():
    return stored(random_features(np.random.default_rng(2)), "sparse")


def assert_same_state(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("outputs", [1, 3])
def test_predictions_are_rows_by_outputs_in_the_models_precision(kind, outputs, precision, rows):
    model = build(kind, outputs=outputs, precision=precision)
    predictions = model.predict(rows)
    assert predictions.shape == (23, outputs)
    assert predictions.dtype == model.dtype == DTYPES[precision]


def test_predicting_a_span_equals_the_span_of_the_predictions(kind, rows):
    model = taught(build(kind))
    whole = model.predict(rows)
    for start, stop in [(0, 23), (0, 1), (5, 11), (22, 23), (7, 7)]:
        # A torch product over fewer rows may add up in another order.
        np.testing.assert_allclose(model.predict(rows, start, stop), whole[start:stop], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.predict(rows, 20), whole[20:], rtol=1e-5, atol=1e-6)


def test_predicting_changes_nothing(kind, rows):
    model = taught(build(kind, optimizer="adam"))
    before = model.state()
    model.predict(rows)
    assert_same_state(model.state(), before)


@pytest.mark.parametrize("optimizer", RULES)
def test_learning_lowers_the_loss_of_a_separable_problem(kind, optimizer):
    random = np.random.default_rng(3)
    shape = Shape(rows=200, start=0, batch=10)
    x = random.normal(size=(shape.rows, shape.width)).astype(np.float32)
    labels = (x @ random.normal(size=shape.width) > 0).astype(np.float64)
    rows, model = stored(x, "sparse"), build(kind, optimizer=optimizer)

    def loss():
        return LOSSES["logistic"].value(model.predict(rows), labels).mean()

    first = loss()
    for _ in range(10):
        own = model.predict(rows)
        update = random_lesson(random, "logistic", "single", shape, rate=0.05, echo=1.0)
        model.learn(rows, update._replace(scores=own, own_at_push=own, labels=labels))
    assert loss() < 0.6 * first


@pytest.mark.parametrize("optimizer", RULES)
def test_a_restored_model_goes_on_bit_by_bit_as_the_one_that_was_saved(kind, optimizer, rows):
    model = taught(build(kind, optimizer=optimizer))
    twin = build(kind, optimizer=optimizer, seed=9)
    twin.restore(model.state())
    assert_same_state(twin.state(), model.state())
    taught(model, seed=5)
    taught(twin, seed=5)
    assert_same_state(twin.state(), model.state())
    np.testing.assert_array_equal(twin.predict(rows), model.predict(rows))


@pytest.mark.parametrize("optimizer", RULES)
def test_a_state_from_before_the_first_lesson_takes_a_model_back(kind, optimizer):
    model = build(kind, optimizer=optimizer)
    fresh = model.state()
    taught(model)
    model.restore(fresh)
    assert_same_state(taught(model).state(), taught(build(kind, optimizer=optimizer)).state())


def test_a_state_shares_no_memory_with_the_model(kind, rows):
    model = taught(build(kind, optimizer="adam"))
    predictions, state = model.predict(rows), model.state()
    kept = {name: array.copy() for name, array in state.items()}
    taught(model)
    assert_same_state(state, kept)
    model.restore(state)
    for array in state.values():
        array[...] = 0
    np.testing.assert_array_equal(model.predict(rows), predictions)


def test_a_state_may_be_read_only(kind, rows):
    model = taught(build(kind, optimizer="adam"))
    state = model.state()
    for array in state.values():
        array.flags.writeable = False
    model.restore(state)
    assert not np.array_equal(taught(model).predict(rows), build(kind).predict(rows))


def test_a_state_of_another_shape_is_refused_by_name_and_changes_nothing(kind):
    model = taught(build(kind, optimizer="adam"))
    other = taught(
        build(kind, optimizer="adam", inputs=3),
        rows=stored(random_features(np.random.default_rng(0), Shape(width=3)), "sparse"),
    )
    before = model.state()
    wrong = next(name for name, array in before.items() if array.shape != other.state()[name].shape)
    with pytest.raises(DataError, match=f"saved '{wrong}' has shape .*, this model needs .*; was it another model"):
        model.restore(other.state())
    assert_same_state(model.state(), before)


def test_every_array_of_a_state_is_checked_before_any_is_taken(kind):
    model = taught(build(kind, optimizer="adam"))
    before = model.state()
    for name, array in before.items():
        changed = {key: value + 1 for key, value in before.items()}
        changed[name] = np.zeros((*array.shape, 2), array.dtype)
        with pytest.raises(DataError, match=f"saved '{name}' has shape"):
            model.restore(changed)
        assert_same_state(model.state(), before)


def test_a_state_with_a_missing_array_is_refused_by_name(kind):
    model = taught(build(kind))
    before = model.state()
    missing = next(iter(before))
    with pytest.raises(DataError, match=f"saved '{missing}' has shape None"):
        model.restore({name: array + 1 for name, array in before.items() if name != missing})
    assert_same_state(model.state(), before)


def test_rows_of_another_width_are_refused(kind):
    model = build(kind)
    before = model.state()
    random = np.random.default_rng(0)
    narrow = stored(random_features(random, Shape(width=3)), "sparse")
    with pytest.raises(DataError, match="rows have 3 features, the model was made for 7"):
        model.predict(narrow)
    with pytest.raises(DataError, match="rows have 3 features, the model was made for 7"):
        model.learn(narrow, random_lesson(random, "logistic", "single"))
    assert_same_state(model.state(), before)


@pytest.mark.parametrize("optimizer", RULES)
def test_no_lesson_changes_nothing(kind, optimizer, rows):
    model = taught(build(kind, optimizer=optimizer))
    before = model.state()
    model.learn(rows, empty_update(1, model.dtype))
    assert_same_state(model.state(), before)


@pytest.mark.parametrize("kind", COMPILED)
def test_a_pickled_model_predicts_and_learns_on_the_same(kind, rows):
    model = taught(build(kind, optimizer="adam"))
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(rows), model.predict(rows))
    assert_same_state(taught(copy).state(), taught(model).state())


def test_l2_lowers_the_penalty_and_none_means_no_penalty(kind):
    assert build(kind, l2=0.0).penalty() == 0.0
    strong, weak = taught(build(kind, l2=1.0)), taught(build(kind, l2=1e-3))
    assert 0.0 < strong.penalty() / 1.0 < weak.penalty() / 1e-3


@pytest.mark.parametrize("kind", PRIVATE_KINDS)
@pytest.mark.parametrize("precision", DTYPES)
def test_a_restored_model_meets_the_noise_that_the_saved_one_would_have_met(kind, precision):
    model = taught(build(kind, private=PRIVATE, precision=precision), precision=precision)
    twin = build(kind, private=PRIVATE, precision=precision, seed=9)
    twin.restore(model.state())
    taught(model, seed=5, precision=precision)
    taught(twin, seed=5, precision=precision)
    assert_same_state(twin.state(), model.state())


@pytest.mark.parametrize("kind", PRIVATE_KINDS)
def test_private_lessons_from_the_first_state_on_are_the_same_again(kind):
    model = build(kind, private=PRIVATE)
    fresh = model.state()
    taught(model)
    model.restore(fresh)
    assert_same_state(taught(model).state(), taught(build(kind, private=PRIVATE)).state())


@pytest.mark.parametrize("kind", PRIVATE_KINDS)
def test_every_array_of_a_private_models_state_is_checked_before_any_is_taken(kind):
    model = taught(build(kind, private=PRIVATE))
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


@pytest.mark.parametrize("kind", PRIVATE_KINDS)
def test_a_model_without_private_steps_keeps_the_count_of_those_before(kind, rows):
    saved = taught(build(kind, private=PRIVATE)).state()
    model = build(kind, seed=9)
    model.restore(saved)
    assert_same_state(model.state(), saved)
    np.testing.assert_array_equal(model.predict(rows), taught(build(kind, private=PRIVATE)).predict(rows))


@pytest.mark.parametrize("kind", PRIVATE_KINDS)
def test_no_lesson_changes_nothing_of_a_private_model(kind, rows):
    model = taught(build(kind, private=PRIVATE))
    before = model.state()
    model.learn(rows, empty_update(1, model.dtype))
    assert_same_state(model.state(), before)


@pytest.mark.parametrize("kind", PRIVATE_KINDS)
def test_a_model_without_private_steps_has_the_state_it_always_had(kind):
    state = taught(build(kind)).state()
    assert not any("private" in name for name in state)
    if kind != "torch":
        assert state["counters"][1] == 0.0
