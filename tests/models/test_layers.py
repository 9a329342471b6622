"""Plain weights of trained models predict what the compiled kernels predict."""

import numpy as np
import pytest
import scipy

from fdml.data.rows import as_rows
from fdml.models.kind import ModelSpec
from fdml.models.layers import PlainModel, fm_layers, linear_layers, mlp_layers
from fdml.models.onnx_file import check_same, onnx_bytes, predicted
from fdml.models.registry import build_model, kind_named, kinds, model_settings
from tests.models.random_updates import FORM_OF, stored

SETTINGS = {
    "linear": model_settings("linear", precision="double", optimizer="sgd", l2=0.1),
    "fm": model_settings("fm", factors=3, precision="double", optimizer="sgd", l2=0.1),
    "mlp": model_settings("mlp", hidden=(5, 4), precision="double", optimizer="sgd", l2=0.1),
    "one hidden layer": model_settings("mlp", hidden=(6,), precision="double", optimizer="adam", l2=0.0),
}


def made(name, width, *, bias):
    """A model with parameters drawn at random, also its biases, its plain weights, and rows."""
    settings = SETTINGS[name]
    spec = ModelSpec(inputs=7, width=width, bias=bias, key=(1, "model", "x"))
    model = build_model(settings, spec)
    random = np.random.default_rng(3)
    state = model.state()
    state["theta"] = random.normal(size=state["theta"].shape)
    state["counters"] = np.concatenate([[0.5], state["counters"][1:]])  # the scale of the weights
    model.restore(state)
    rows = random.normal(size=(50, 7)).astype(np.float32)
    return model, kind_named(settings.kind).layers(settings, spec, model.parameters), rows


def by_hand(plain: PlainModel, rows):
    here = rows.astype(np.float64)
    for depth, layer in enumerate(plain.layers):
        here = (np.maximum(here, 0) if depth else here) @ layer.weights + layer.bias
    if plain.factors is None:
        return here
    sums = np.einsum("ni,ikf->nkf", rows, plain.factors)
    squares = np.einsum("ni,ikf->nkf", rows.astype(np.float64) ** 2, plain.factors**2)
    return here + 0.5 * (sums**2 - squares).sum(axis=2)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_plain_weights_and_onnx_predict_what_the_kernels_predict(name, width, bias):
    model, plain, rows = made(name, width, bias=bias)
    expected = model.predict(stored(rows, FORM_OF["double"]))
    np.testing.assert_allclose(by_hand(plain, rows), expected, rtol=1e-12, atol=1e-12)
    file = onnx_bytes(plain, [f"f{number}" for number in range(7)], {"run": "first"})
    assert check_same(file, rows, expected) < 1e-12
    assert predicted(file, rows[:0]).shape == (0, width)


def test_every_built_in_kind_of_kernels_has_plain_weights():
    assert {kind.name for kind in kinds() if kind.layers is not None} >= {"linear", "fm", "mlp"}
    assert kind_named("torch").layers is None


# The layout of each kind's parameters, by numbers that can be followed by hand


def test_a_linear_model_has_a_column_of_weights_for_each_float():
    plain = linear_layers(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 2, 3)
    (layer,) = plain.layers
    assert layer.weights.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert layer.bias.tolist() == [0.0, 0.0, 0.0], "without a bias it is zero"
    assert plain.factors is None


def test_a_bias_comes_last():
    (layer,) = linear_layers(np.array([1.0, 2.0, 7.0]), 2, 1).layers
    assert layer.weights.tolist() == [[1.0], [2.0]]
    assert layer.bias.tolist() == [7.0]


def test_a_factorization_machine_has_a_weight_and_its_factors_for_each_feature():
    plain = fm_layers(np.array([1.0, 10.0, 11.0, 2.0, 20.0, 21.0, 7.0]), 2, 1, 2)
    (layer,) = plain.layers
    assert layer.weights.tolist() == [[1.0], [2.0]]
    assert layer.bias.tolist() == [7.0]
    assert plain.factors.tolist() == [[[10.0, 11.0]], [[20.0, 21.0]]]
    rows = np.array([[1.0, 1.0], [1.0, 0.0]])
    assert by_hand(plain, rows).tolist() == [[7.0 + 3.0 + 10 * 20 + 11 * 21], [7.0 + 1.0]]


def test_a_net_has_its_first_layer_by_features_and_later_ones_by_units():
    first, later, biases = [1.0, 2.0, 3.0, 4.0], [5.0, 6.0], [0.5, -0.5, 0.25]
    plain = mlp_layers(np.array([*first, *later, *biases]), 2, [2, 1])
    below, above = plain.layers
    assert below.weights.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert below.bias.tolist() == [0.5, -0.5]
    assert above.weights.tolist() == [[5.0], [6.0]]
    assert above.bias.tolist() == [0.25]
    assert by_hand(plain, np.array([[-1.0, 0.0]])).tolist() == [[0.25]], "units below zero are cut"


def test_the_last_layer_of_a_net_without_a_bias_has_zeros():
    plain = mlp_layers(np.array([1.0, 2.0, 3.0, 0.5]), 2, [1, 1])
    assert plain.layers[0].bias.tolist() == [0.5]
    assert plain.layers[1].bias.tolist() == [0.0]


@pytest.mark.parametrize("name", SETTINGS)
def test_sparse_rows_are_no_others(name):
    model, plain, rows = made(name, 2, bias=True)
    rows[np.random.default_rng(1).random(rows.shape) < 0.7] = 0.0
    sparse = as_rows(scipy.sparse.csr_array(rows))
    np.testing.assert_allclose(by_hand(plain, rows), model.predict(sparse), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_model_in_single_precision_is_near_its_plain_weights(name):
    model, plain, rows = made(name, 1, bias=True)
    single = build_model(
        SETTINGS[name].model_copy(update={"precision": "single"}), ModelSpec(7, 1, bias=True, key=(1, "model", "x"))
    )
    single.restore(model.state())
    assert single.predict(as_rows(rows)).dtype == np.float32
    np.testing.assert_allclose(by_hand(plain, rows), single.predict(as_rows(rows)), rtol=1e-4, atol=1e-4)
