"""Where the built-in kinds begin."""

import numpy as np
import pytest

from fdml.models.fm.kind import initial_weights as fm_weights
from fdml.models.initialisation import generator
from fdml.models.mlp.kind import initial_weights as mlp_weights
from fdml.models.registry import compiled_kinds, model_settings
from tests.models.random_updates import build, random_features, stored

INPUTS = 2000


def parameters(kind, width=1, *, bias=True, inputs=INPUTS, **values):
    return build(model_settings(kind, precision="double", **values), inputs, width, bias=bias).parameters


def test_a_generator_depends_on_its_key_alone():
    np.testing.assert_array_equal(generator(7, "a").normal(size=5), generator(7, "a").normal(size=5))
    assert not np.array_equal(generator(7, "a").normal(size=5), generator(7, "b").normal(size=5))
    assert not np.array_equal(generator(7, "a").normal(size=5), generator(8, "a").normal(size=5))


def test_a_linear_model_begins_at_zero():
    assert not parameters("linear", 3).any()


@pytest.mark.parametrize("width", [1, 3])
def test_a_factorization_machine_begins_with_zero_weights_and_small_random_factors(width):
    cells = parameters("fm", width, bias=False, factors=4).reshape(INPUTS * width, 5)
    assert not cells[:, 0].any()
    assert cells[:, 1:].std() == pytest.approx(0.05, rel=0.05)
    assert len(np.unique(cells[:, 1:])) == cells[:, 1:].size, "equal factors would stay equal for ever"


def test_layers_begin_with_the_variance_that_keeps_their_units_as_long_as_their_inputs():
    weights = mlp_weights(INPUTS, [300, 40], generator(1))
    first, last = weights[: INPUTS * 300], weights[INPUTS * 300 :]
    assert first.var() == pytest.approx(2.0 / INPUTS, rel=0.05)
    assert last.var() == pytest.approx(1.0 / 300, rel=0.05)


def test_a_layer_without_inputs_has_no_weights():
    assert len(mlp_weights(0, [3, 1], generator(1))) == 3
    assert len(fm_weights(0, 4, generator(1))) == 0


@pytest.mark.parametrize("kind", compiled_kinds())
@pytest.mark.parametrize("width", [1, 3])
def test_all_biases_begin_at_zero_and_there_is_one_for_each_float_of_the_prediction(kind, width):
    with_bias, without = (parameters(kind, width, bias=bias, inputs=7) for bias in (True, False))
    assert len(with_bias) == len(without) + width
    assert not with_bias[-width:].any()
    np.testing.assert_array_equal(with_bias[: -width or None], without)


@pytest.mark.parametrize("kind", compiled_kinds())
def test_a_row_without_entries_is_predicted_as_zero_at_the_start(kind):
    rows = stored(np.zeros((2, 7), np.float32), "sparse")
    assert not build(model_settings(kind, precision="double"), 7, 2).predict(rows).any()


@pytest.mark.parametrize("kind", compiled_kinds())
def test_single_precision_begins_at_the_double_parameters_rounded(kind):
    single, double = (build(model_settings(kind, precision=each), 7, 2) for each in ("single", "double"))
    np.testing.assert_array_equal(single.parameters, double.parameters.astype(np.float32))
    features = random_features(np.random.default_rng(0))
    of_single, of_double = (
        each.predict(stored(features, form)) for each, form in ((single, "dense"), (double, "sparse"))
    )
    np.testing.assert_allclose(of_single, of_double, rtol=1e-4, atol=1e-5)
