import numpy as np
import pytest

from fdml.errors import SettingsError
from fdml.models.learning_rate import LearningRate, RateInputs, starting_rate
from fdml.models.registry import kind_named, model_settings


def test_linear_falls_evenly_towards_zero_over_all_updates():
    np.testing.assert_allclose(LearningRate(0.8, "linear", 4).of(0, 4), [0.8, 0.6, 0.4, 0.2])


def test_sqrt_falls_as_in_the_paper():
    np.testing.assert_allclose(LearningRate(0.6, "sqrt", 9).of(0, 9)[[0, 3, 8]], [0.6, 0.3, 0.2])


def test_constant_stays():
    assert LearningRate(0.3, "constant", 9).of(2, 3).tolist() == [0.3, 0.3, 0.3]


@pytest.mark.parametrize("decay", ["linear", "sqrt", "constant"])
def test_the_rates_of_a_stretch_are_a_stretch_of_the_rates(decay):
    rate = LearningRate(0.5, decay, 20)
    np.testing.assert_array_equal(rate.of(7, 5), rate.of(0, 20)[7:12])


GIVEN = RateInputs(curvature=0.25, parties=4, inputs=20, square_norm=10.0)


def start(wanted, given=GIVEN, **model):
    settings = model_settings(**{"optimizer": "sgd", "l2": 1e-4, **model})
    return starting_rate(wanted, settings, given, kind_named(settings.kind).default_rate)


def test_a_rate_asked_for_is_taken():
    assert start(0.5) == 0.5


@pytest.mark.parametrize(
    ("optimizer", "expected"), [("sgd", 0.1), ("momentum", 0.01), ("adagrad", 0.05), ("adam", 0.03)]
)
def test_the_automatic_rate_is_safe_for_all_parties_together(optimizer, expected):
    assert start("auto", optimizer=optimizer) == pytest.approx(expected)


def test_the_hidden_units_of_an_mlp_count_as_more_inputs():
    assert start("auto", kind="mlp", hidden=(15, 5)) == pytest.approx(start("auto") / 2)


@pytest.mark.parametrize(("kind", "expected"), [("linear", 0.03), ("mlp", 0.005), ("fm", 0.002)])
def test_the_steps_of_adam_are_those_measured_for_the_kind(kind, expected):
    assert start("auto", kind=kind, optimizer="adam") == expected


@pytest.mark.parametrize("wanted", ["auto", 0.5])
def test_an_auto_that_no_rule_has_replaced_is_refused(wanted):
    with pytest.raises(SettingsError, match=r'(optimizer|l2) is "auto" and no rule has replaced it yet; give'):
        start(wanted, optimizer="auto", l2="auto")


def test_rows_without_entries_are_taken_to_be_of_length_one():
    """So that the usual L2 does not overshoot."""
    assert start("auto", RateInputs(curvature=1.0, parties=4, inputs=0, square_norm=0.0)) == 0.25


def test_a_rate_that_l2_would_overshoot_is_refused():
    with pytest.raises(SettingsError, match=r"learning_rate 0\.5 times l2 2 must be below 1; lower one of them"):
        start(0.5, l2=2.0)
