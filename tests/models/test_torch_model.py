"""The torch adapter, and with it torch.optim as a second check of the update rules."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from fdml.errors import DataError, SettingsError
from fdml.models.kernels.optimizers import RULES
from fdml.models.kind import ModelSpec
from fdml.models.registry import model_settings
from fdml.models.torch import model as torch_model
from fdml.models.torch.model import TorchModel
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.noise import NoiseKey
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

WIDTH = 7
TOLERANCE = {"single": 1e-4, "double": 1e-9}
DP_SGD = DpSgd(0.5, 0.3, NoiseKey(b"a secret of this run"))
WANTED = model_settings("torch", module="unused:unused", optimizer="sgd", l2=0.02, momentum=0.8)


def torch_model_of(module, width=1, inputs=WIDTH, dp_sgd=None, **changed):
    spec = ModelSpec(inputs=inputs, width=width, bias=True, key=(1,), dp_sgd=dp_sgd)
    return TorchModel(module, WANTED.model_copy(update=changed), spec)


def compiled(kind, width, dp_sgd=None, **changed):
    settings = settings_of(kind, hidden=(5, 4), **{"l2": WANTED.l2, "momentum": WANTED.momentum, **changed})
    model = build(settings, WIDTH, width, dp_sgd=dp_sgd)
    set_parameters(model, np.random.default_rng(3).normal(0.0, 0.5, len(model.parameters)))
    return model


def as_linear(parameters, width):
    module = torch.nn.Linear(WIDTH, width)
    weights, bias = parameters[: WIDTH * width], parameters[WIDTH * width :]
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weights.reshape(WIDTH, width).T))
        module.bias.copy_(torch.tensor(bias))
    return module


def as_mlp(parameters, width):
    sizes = [WIDTH, 5, 4, width]
    layers = [torch.nn.Linear(below, above) for below, above in pairwise(sizes)]
    shapes = [(WIDTH, 5), (4, 5), (width, 4)]
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


def assert_they_learn_the_same(kind, optimizer, loss, precision, dp_sgd=None):
    random = np.random.default_rng(11)
    width, chosen = WIDTH_OF[loss], {"optimizer": optimizer, "precision": precision}
    ours = compiled(kind, width, dp_sgd, **chosen)
    # A double module from the first: the copy of single parameters would already be rounded.
    torch.set_default_dtype(torch.float64 if precision == "double" else torch.float32)
    try:
        module = (as_linear if kind == "linear" else as_mlp)(ours.parameters, width)
    finally:
        torch.set_default_dtype(torch.float32)
    theirs = torch_model_of(module, width, dp_sgd=dp_sgd, **chosen)
    rows = stored(random_features(random), FORM_OF[precision])
    near = {"rtol": TOLERANCE[precision], "atol": TOLERANCE[precision]}
    np.testing.assert_allclose(theirs.predict(rows), ours.predict(rows), **near)
    for _ in range(3):
        update = random_update(random, loss, precision, rate=0.1)
        ours.learn(rows, *update)
        theirs.learn(rows, *update)
    np.testing.assert_allclose(theirs.predict(rows), ours.predict(rows), **near)
    assert theirs.penalty() == pytest.approx(ours.penalty(), rel=TOLERANCE[precision])


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("optimizer", RULES)
def test_a_torch_linear_layer_learns_as_the_compiled_linear_model(optimizer, precision):
    assert_they_learn_the_same("linear", optimizer, "logistic", precision)


@pytest.mark.parametrize("loss", WIDTH_OF)
def test_every_loss_reaches_torch_as_it_reaches_the_kernels(loss):
    assert_they_learn_the_same("linear", "sgd", loss, "double")


@pytest.mark.parametrize("optimizer", RULES)
def test_torch_layers_learn_as_the_compiled_mlp(optimizer):
    assert_they_learn_the_same("mlp", optimizer, "softmax", "double")


def test_a_module_of_another_width_is_refused():
    model = torch_model_of(torch.nn.Linear(WIDTH, 2))
    with pytest.raises(DataError, match=r"returned shape \(23, 2\) for 23 rows; it must return \(23, 1\)"):
        model.predict(stored(random_features(np.random.default_rng(0)), "dense"))


def test_what_is_not_a_module_is_refused():
    with pytest.raises(SettingsError, match=r"needs a torch.nn.Module, not str"):
        torch_model_of("net")


def test_the_factory_is_called_with_inputs_and_width():
    model = build(model_settings("torch", module=torch.nn.Linear), WIDTH, 3)
    assert model.predict(stored(random_features(np.random.default_rng(0)), "sparse")).shape == (23, 3)


def test_the_state_of_another_optimizer_is_refused():
    adam = torch_model_of(torch.nn.Linear(WIDTH, 1), optimizer="adam")
    random = np.random.default_rng(0)
    adam.learn(stored(random_features(random), "dense"), *random_update(random, "logistic", "single"))
    plain = torch_model_of(torch.nn.Linear(WIDTH, 1))
    with pytest.raises(DataError, match=r"saved 'rule/0/exp_avg' has no place in this model"):
        plain.restore(adam.state())


def test_dropout_is_off_when_predicting_and_on_when_learning():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(WIDTH, 1))
    random = np.random.default_rng(0)
    rows = stored(random_features(random), "dense")
    model = torch_model_of(module)
    np.testing.assert_array_equal(model.predict(rows), model.predict(rows))
    model.learn(rows, *random_update(random, "logistic", "single"))
    assert module.training


def after_one_pass(model, seed=0):
    random = np.random.default_rng(seed)
    model.learn(stored(random_features(random), "dense"), *random_update(random, "logistic", "single"))
    return model


@pytest.mark.parametrize("precision", ["single", pytest.param("double", marks=pytest.mark.slow)])
def test_dp_sgd_of_a_linear_layer_is_that_of_the_compiled_linear_model(precision):
    """With one float the parameters are in the same order, so the noise is the same too."""
    assert_they_learn_the_same("linear", "sgd", "logistic", precision, dp_sgd=DP_SGD)


@pytest.mark.slow
@pytest.mark.parametrize("loss", WIDTH_OF)
@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_every_loss_is_clipped_as_the_kernels_clip_it(kind, loss):
    assert_they_learn_the_same(kind, "sgd", loss, "double", dp_sgd=DpSgd(0.3, 0.0, DP_SGD.key))


def test_rows_that_do_not_fit_into_memory_together_are_clipped_in_turn(monkeypatch):
    def parameters():
        torch.manual_seed(0)
        return after_one_pass(torch_model_of(torch.nn.Linear(WIDTH, 1), dp_sgd=DP_SGD)).state()["module/weight"]

    together = parameters()
    monkeypatch.setattr(torch_model, "_GRADIENT_CELLS", 2 * (WIDTH + 1))
    np.testing.assert_allclose(parameters(), together, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "mixing",
    [
        torch.nn.BatchNorm1d(WIDTH),
        torch.nn.BatchNorm1d(WIDTH, track_running_stats=False),
        torch.nn.InstanceNorm1d(WIDTH, track_running_stats=True),
    ],
)
def test_modules_that_mix_rows_cannot_be_trained_with_dp_sgd(mixing):
    module = torch.nn.Sequential(mixing, torch.nn.Linear(WIDTH, 1))
    with pytest.raises(SettingsError, match=rf"has a {type(mixing).__name__}, which mixes rows.*take GroupNorm"):
        torch_model_of(module, dp_sgd=DP_SGD)


class Deciding(torch.nn.Linear):
    """What it does depends on the values of a row, which vmap cannot follow."""

    def forward(self, features):
        return super().forward(features if features.sum() > 0 else -features)


class Remembering(torch.nn.Linear):
    """Keeps a mean of what it was shown in a buffer, past all clipping."""

    def __init__(self, inputs, width):
        super().__init__(inputs, width)
        self.register_buffer("mean", torch.zeros(inputs))

    def forward(self, features):
        self.mean.mul_(0.9).add_(features.mean(dim=0))
        return super().forward(features - self.mean)


@pytest.mark.parametrize("kind", [Deciding, Remembering])
def test_modules_that_vmap_cannot_run_cannot_be_trained_with_dp_sgd(kind):
    with pytest.raises(SettingsError, match=r"cannot be run one row at a time.*change the module, or leave"):
        torch_model_of(kind(WIDTH, 1), dp_sgd=DP_SGD)


def test_with_dp_sgd_a_module_draws_the_same_again_wherever_torchs_own_generator_is():
    """Another dropout under the same noise would show the difference of both without any."""
    module = torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), torch.nn.Dropout(0.5), torch.nn.Linear(WIDTH, 1))
    model = torch_model_of(module, dp_sgd=DP_SGD)
    start, before = model.state(), torch.get_rng_state()
    first = after_one_pass(model).state()
    assert torch.equal(torch.get_rng_state(), before)
    model.restore(start)
    torch.manual_seed(12345)
    again = after_one_pass(model).state()
    for name, array in first.items():
        np.testing.assert_array_equal(again[name], array)


def test_the_gradient_of_a_row_is_that_of_its_prediction_under_dropout():
    """Without noise and clipping, a row that dropout leaves nothing of must move the bias alone."""
    module = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(1, 1))
    model = torch_model_of(module, inputs=1, dp_sgd=DpSgd(1e6, 0.0, DP_SGD.key), l2=0.0)
    random = np.random.default_rng(0)
    shape = Shape(rows=1, start=0, batch=1, width=1)
    rows, seen = stored(np.ones((1, 1), np.float32), "dense"), set()
    for _ in range(30):
        block, scores = random_update(random, "squared", "single", shape, echo=1.0)
        before = model.state()
        scores = scores._replace(own_at_push=np.zeros_like(scores.own_at_push))
        model.learn(rows, block, scores)
        after = model.state()
        moved = {name: float((after[name] - before[name]).squeeze()) for name in ("module/1.weight", "module/1.bias")}
        kept = abs(moved["module/1.weight"]) > 1e-9
        own = float(before["module/1.bias"][0]) + 2.0 * kept * float(before["module/1.weight"][0, 0])
        towards = (float(scores.total[0, 0]) + own - scores.labels[0]) * scores.weights[0]
        assert moved["module/1.bias"] == pytest.approx(-block.rates[0] * towards, rel=1e-3, abs=1e-5)
        seen.add(kept)
    assert seen == {True, False}


def test_dp_sgd_leaves_frozen_parameters_alone():
    module = torch.nn.Sequential(torch.nn.Linear(WIDTH, 3), torch.nn.Linear(3, 1))
    module[0].requires_grad_(False)
    model = torch_model_of(module, dp_sgd=DP_SGD)
    before = model.state()
    after = after_one_pass(model).state()
    np.testing.assert_array_equal(after["module/0.weight"], before["module/0.weight"])
    assert not np.isclose(after["module/1.weight"], before["module/1.weight"]).any()


def test_with_dp_sgd_a_module_of_another_width_is_refused():
    with pytest.raises(DataError, match=r"returned shape \(5, 2\) for 5 rows; it must return \(5, 1\)"):
        after_one_pass(torch_model_of(torch.nn.Linear(WIDTH, 2), dp_sgd=DP_SGD))
