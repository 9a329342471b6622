import numpy as np
import pytest

from fdml.models.fm.kind import initial_weights as fm_weights
from fdml.models.initialisation import generator
from fdml.models.mlp.kind import initial_weights as mlp_weights
from fdml.models.registry import model_settings
from tests.models.random_updates import build


def drawn(*key):
    return generator(*key).normal(size=8).tobytes()


def test_a_stream_depends_on_its_key_alone():
    first = drawn(7, "model", "store")
    np.random.default_rng().normal(size=5)
    assert drawn(7, "model", "store") == first


@pytest.mark.parametrize("key", [(8, "model", "store"), (7, "model", "browser"), (7, "model"), (7, "models", "tore")])
def test_another_key_is_another_stream(key):
    assert drawn(*key) != drawn(7, "model", "store")


def test_a_factorization_machine_starts_with_small_factors_and_no_weights():
    weights = fm_weights(500, 4, generator(1)).reshape(500, 5)
    assert not weights[:, 0].any()
    assert weights[:, 1:].std() == pytest.approx(0.05, rel=0.05)
    assert len(np.unique(weights[:, 1:])) == 2000, "equal factors would stay equal for ever"


def test_the_layers_of_a_perceptron_start_with_hes_variance_and_the_last_with_half():
    weights = mlp_weights(200, [100, 50, 10], generator(1))
    first, second, last = np.split(weights, [200 * 100, 200 * 100 + 100 * 50])
    assert first.var() == pytest.approx(2 / 200, rel=0.05)
    assert second.var() == pytest.approx(2 / 100, rel=0.1)
    assert last.var() == pytest.approx(1 / 50, rel=0.25)


def test_a_perceptron_without_inputs_has_weights_for_its_other_layers_only():
    assert len(mlp_weights(0, [4, 2], generator(1))) == 8


@pytest.mark.parametrize("kind", ["linear", "fm", "mlp"])
def test_biases_start_at_zero(kind):
    model = build(model_settings(kind), 6, 2)
    assert not model.parameters[-2:].any()


@pytest.mark.parametrize("kind", ["fm", "mlp"])
def test_the_precision_changes_no_draw(kind):
    single, double = (
        build(model_settings(kind, precision=precision), 6, 2).parameters for precision in ("single", "double")
    )
    np.testing.assert_array_equal(single, double.astype(np.float32))
