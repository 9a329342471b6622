"""The torch adapter, and with it torch.optim as a second witness of the update rules."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from fdml.errors import DataError, SettingsError
from fdml.party.build import build_model
from fdml.party.models import RULES, build_compiled
from fdml.party.torch_model import TorchModel
from fdml.settings import ModelSettings
from tests.party.lessons import DTYPES, OUTPUTS_OF, random_features, random_lesson, set_parameters, stored

WIDTH = 7
TOLERANCE = {"single": 1e-4, "double": 1e-9}
WANTED = ModelSettings(kind="torch", module="unused:unused", l2=0.02, momentum=0.8)


def compiled(kind, wanted, outputs):
    settings = wanted.model_copy(update={"kind": kind, "hidden": (5, 4)})
    model = build_compiled(settings, WIDTH, outputs, bias=True, key=(1,))
    set_parameters(model, np.random.default_rng(3).normal(0.0, 0.5, len(model.parameters)))
    return model


def as_linear(parameters, outputs):
    module = torch.nn.Linear(WIDTH, outputs)
    weights, bias = parameters[: WIDTH * outputs], parameters[WIDTH * outputs :]
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weights.reshape(WIDTH, outputs).T))
        module.bias.copy_(torch.tensor(bias))
    return module


def as_mlp(parameters, outputs):
    sizes = [WIDTH, 5, 4, outputs]
    layers = [torch.nn.Linear(below, above) for below, above in pairwise(sizes)]
    shapes = [(WIDTH, 5), (4, 5), (outputs, 4)]
    with torch.no_grad():
        at = 0
        for number, (layer, shape) in enumerate(zip(layers, shapes, strict=True)):
            size = shape[0] * shape[1]
            stored_weights = torch.tensor(parameters[at : at + size].reshape(shape))
            layer.weight.copy_(stored_weights.T if number == 0 else stored_weights)
            at += size
        for layer in layers:
            layer.bias.copy_(torch.tensor(parameters[at : at + len(layer.bias)]))
            at += len(layer.bias)
    relu = torch.nn.ReLU()
    return torch.nn.Sequential(layers[0], relu, layers[1], relu, layers[2])


def assert_they_learn_the_same(kind, rule, loss, precision, form="sparse"):
    random = np.random.default_rng(11)
    outputs, wanted = OUTPUTS_OF[loss], WANTED.model_copy(update={"rule": rule, "precision": precision})
    ours = compiled(kind, wanted, outputs)
    # A double module from the first: the copy of single parameters would already be rounded.
    torch.set_default_dtype(torch.float64 if precision == "double" else torch.float32)
    try:
        module = (as_linear if kind == "linear" else as_mlp)(ours.parameters, outputs)
    finally:
        torch.set_default_dtype(torch.float32)
    theirs = TorchModel(module, wanted, outputs, WIDTH)
    rows = stored(random_features(random), form)
    near = {"rtol": TOLERANCE[precision], "atol": TOLERANCE[precision]}
    np.testing.assert_allclose(theirs.predict(rows), ours.predict(rows), **near)
    for _ in range(3):
        lesson = random_lesson(random, loss, precision, rate=0.1)
        ours.learn(rows, lesson)
        theirs.learn(rows, lesson)
    np.testing.assert_allclose(theirs.predict(rows), ours.predict(rows), **near)
    assert theirs.penalty() == pytest.approx(ours.penalty(), rel=TOLERANCE[precision])


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("rule", RULES)
def test_a_torch_linear_layer_learns_as_the_compiled_linear_model(rule, precision):
    assert_they_learn_the_same("linear", rule, "logistic", precision)


@pytest.mark.parametrize("loss", OUTPUTS_OF)
def test_every_loss_reaches_torch_as_it_reaches_the_kernels(loss):
    assert_they_learn_the_same("linear", "sgd", loss, "double", form="dense")


@pytest.mark.parametrize("rule", RULES)
def test_torch_layers_learn_as_the_compiled_mlp(rule):
    assert_they_learn_the_same("mlp", rule, "softmax", "double")


def test_a_module_with_other_outputs_is_refused():
    model = TorchModel(torch.nn.Linear(WIDTH, 2), WANTED, 1, WIDTH)
    with pytest.raises(DataError, match=r"returned shape \(23, 2\) for 23 rows; it must return \(23, 1\)"):
        model.predict(stored(random_features(np.random.default_rng(0)), "dense"))


def test_what_is_not_a_module_is_refused():
    with pytest.raises(SettingsError, match=r"needs a torch.nn.Module, not str"):
        TorchModel("net", WANTED, 1, WIDTH)


def test_the_factory_is_called_with_inputs_and_outputs():
    model = build_model(WANTED, WIDTH, 3, bias=True, key=(1,), module=torch.nn.Linear)
    assert model.predict(stored(random_features(np.random.default_rng(0)), "sparse")).shape == (23, 3)


def test_the_memory_of_another_rule_is_refused():
    adam = TorchModel(torch.nn.Linear(WIDTH, 1), WANTED.model_copy(update={"rule": "adam"}), 1, WIDTH)
    random = np.random.default_rng(0)
    adam.learn(stored(random_features(random), "dense"), random_lesson(random, "logistic", "single"))
    plain = TorchModel(torch.nn.Linear(WIDTH, 1), WANTED, 1, WIDTH)
    with pytest.raises(DataError, match=r"saved 'rule/0/exp_avg' has no place in this model"):
        plain.restore(adam.state())


def test_dropout_is_off_when_predicting_and_on_when_learning():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(WIDTH, 1))
    random = np.random.default_rng(0)
    rows = stored(random_features(random), "dense")
    model = TorchModel(module, WANTED, 1, WIDTH)
    np.testing.assert_array_equal(model.predict(rows), model.predict(rows))
    model.learn(rows, random_lesson(random, "logistic", "single"))
    assert module.training
