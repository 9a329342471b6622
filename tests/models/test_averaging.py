"""Averages of weights: predicted by outside of training, exact after a restart, and gone where there is none."""

import numpy as np
import pytest

from fdml.errors import SettingsError
from fdml.models.averaging import AveragedModel
from fdml.models.joint import Interactions
from fdml.models.joint_model import JointModel
from fdml.models.learner import LocalLearner
from fdml.models.model import PROGRESS, current_model
from fdml.models.registry import model_settings
from tests.models.random_updates import Shape, build, random_features, random_update, settings_of, stored

DECAY = 0.9
SHAPE = Shape(rows=40, start=0, batch=10)
ROWS = stored(random_features(np.random.default_rng(3), SHAPE), "sparse")
BATCHES = 4
KINDS = ["linear", "fm", "mlp"]


def averaged(kind, seed=1, joint=None, **values):
    settings = settings_of(kind, hidden=(5,), factors=2, average=DECAY, precision="double", **values)
    return build(settings, SHAPE.width, 1, key=(seed,), **({} if joint is None else {"joint": joint}))


def update(seed, **options):
    return random_update(np.random.default_rng(seed), "logistic", "double", SHAPE, rate=0.05, **options)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_average_is_that_of_the_weights_after_each_block(kind, optimizer):
    model = averaged(kind, optimizer=optimizer)
    plain = build(settings_of(kind, hidden=(5,), factors=2, precision="double", optimizer=optimizer), 7, 1, key=(1,))
    seen, kept = [], DECAY**BATCHES
    for seed in range(3):
        for each in (model, plain):
            each.learn(ROWS, *update(seed))
        seen.append(plain.parameters)
    shares = np.array([kept**2, kept, 1.0]) * (1.0 - kept)
    expected = np.tensordot(shares / shares.sum(), np.array(seen), 1)
    np.testing.assert_allclose(model.state()["theta"], expected, rtol=1e-12)
    np.testing.assert_array_equal(model.current.predict(ROWS), plain.predict(ROWS))
    assert not np.allclose(model.predict(ROWS), plain.predict(ROWS))


def test_after_one_block_the_average_is_the_weights_themselves():
    model = averaged("mlp")
    before = model.predict(ROWS)
    np.testing.assert_array_equal(before, model.current.predict(ROWS))
    model.learn(ROWS, *update(0))
    np.testing.assert_allclose(model.predict(ROWS), model.current.predict(ROWS), rtol=1e-12)
    assert not np.array_equal(model.predict(ROWS), before)


def test_training_rows_are_predicted_by_the_weights_and_held_out_rows_by_the_average():
    model = averaged("mlp")
    learner = LocalLearner(model, ROWS, held_out=ROWS)
    for seed in range(3):
        learner.update(*update(seed))
    np.testing.assert_array_equal(learner.predict(0, SHAPE.rows), model.current.predict(ROWS))
    np.testing.assert_array_equal(learner.predict_held_out(), model.predict(ROWS))
    assert not np.array_equal(learner.predict(0, SHAPE.rows), learner.predict_held_out())


def test_a_restored_model_goes_on_to_the_bit():
    model, other = averaged("mlp", optimizer="adam"), averaged("mlp", seed=9, optimizer="adam")
    for seed in range(2):
        model.learn(ROWS, *update(seed))
    other.restore(model.state())
    for each in (model, other):
        each.learn(ROWS, *update(7))
    for name, array in model.state().items():
        np.testing.assert_array_equal(other.state()[name], array, err_msg=name)


def test_what_a_bundle_keeps_is_a_model_at_the_average():
    model = averaged("mlp", optimizer="adam")
    for seed in range(3):
        model.learn(ROWS, *update(seed))
    kept = {name: array for name, array in model.state().items() if not name.startswith(PROGRESS)}
    plain = build(settings_of("mlp", hidden=(5,), precision="double", optimizer="adam"), SHAPE.width, 1, key=(5,))
    plain.restore(kept)
    again = averaged("mlp", seed=8, optimizer="adam")
    again.restore(kept)
    for each in (plain, again, again.current):
        np.testing.assert_array_equal(each.predict(ROWS), model.predict(ROWS))


@pytest.mark.slow
def test_under_a_joint_function_the_model_in_training_is_under_it_too():
    model = averaged("mlp", joint=Interactions(2))
    assert isinstance(model, JointModel)
    assert isinstance(model.outputs, AveragedModel)
    for seed in range(2):
        model.learn(ROWS, *update(seed, joint=model.joint))
    current = current_model(model)
    assert current.joint is model.joint
    np.testing.assert_array_equal(
        current.predict(ROWS), model.joint.local_prediction(model.outputs.current.predict(ROWS))
    )
    assert not np.array_equal(current.predict(ROWS), model.predict(ROWS))


@pytest.mark.parametrize("kind", KINDS)
def test_without_an_average_there_is_one_model(kind):
    model = build(model_settings(kind), SHAPE.width, 1)
    assert current_model(model) is model
    assert not any(name.startswith(PROGRESS) for name in model.state())


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5])
def test_a_decay_out_of_range_is_refused(decay):
    with pytest.raises(SettingsError, match="average"):
        model_settings("mlp", average=decay)


def test_trees_have_nothing_to_average():
    with pytest.raises(SettingsError, match="average"):
        model_settings("trees", average=0.9)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_torch_module_is_averaged_with_its_buffers_as_they_are(optimizer):
    torch = pytest.importorskip("torch")

    def net(inputs, width):
        return torch.nn.Sequential(torch.nn.Linear(inputs, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, width))

    model = build(settings_of("torch", module=net, average=DECAY, optimizer=optimizer), SHAPE.width, 1)
    seen = []
    for seed in range(2):
        model.learn(ROWS, *random_update(np.random.default_rng(seed), "logistic", "single", SHAPE, rate=0.05))
        seen.append(model.current.state())
    found, kept = model.state(), DECAY**BATCHES
    share = 1.0 / (1.0 + kept)
    for name in ("module/0.weight", "module/2.bias"):
        np.testing.assert_allclose(found[name], (1 - share) * seen[0][name] + share * seen[1][name], rtol=1e-5)
    np.testing.assert_array_equal(found["module/1.running_mean"], seen[1]["module/1.running_mean"])
