"""Losses of a regression: figures as scikit-learn has them, and scores of any size."""

import numpy as np
import pytest
import sklearn.metrics as sk

from fdml.data.row_set import RowSet
from fdml.errors import SettingsError
from fdml.models.bootstrap import paired_difference
from fdml.models.losses import LOSSES, loss_named
from fdml.models.metrics import d2_of_each, explained, metric, regression_loss
from fdml.models.regression_losses import Quantile
from fdml.models.task_metrics import task_metrics
from fdml.settings.choices import LARGEST_LOG

ROWS, UNIT = 200, 4.0
LEVELS = {"quantile": 0.5, "quantile(0.9)": 0.9, "quantile(0.05)": 0.05}


def sample_of(loss, seed=0, rows=ROWS):
    """Scaled labels, weights, and scores that know something of them."""
    random = np.random.default_rng(seed)
    score = random.normal(0.0, 0.7, (rows, 1))
    labels = random.poisson(np.exp(score[:, 0])) / 1.0 if loss == "poisson" else score[:, 0] + random.normal(size=rows)
    return score, RowSet({}, labels, random.uniform(0.2, 2.0, rows))


def test_the_figures_of_poisson_are_those_of_scikit_learn_in_the_units_of_the_labels():
    score, sample = sample_of("poisson")
    found = task_metrics("regression", "poisson", score, sample, unit=UNIT)
    labels, rates, weights = UNIT * sample.labels, UNIT * np.exp(score[:, 0]), sample.weights
    assert list(found) == ["d2", "poisson_deviance", "mae"]
    assert found["d2"] == pytest.approx(sk.d2_tweedie_score(labels, rates, power=1, sample_weight=weights))
    assert found["poisson_deviance"] == pytest.approx(sk.mean_poisson_deviance(labels, rates, sample_weight=weights))
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(labels, rates, sample_weight=weights))


@pytest.mark.parametrize("loss", LEVELS)
def test_the_figures_of_a_quantile_are_those_of_scikit_learn_in_the_units_of_the_labels(loss):
    score, sample = sample_of(loss)
    found = task_metrics("regression", loss, score, sample, unit=UNIT)
    labels, predicted, weights, level = UNIT * sample.labels, UNIT * score[:, 0], sample.weights, LEVELS[loss]
    assert list(found) == ["d2", "pinball_loss", "coverage", "mae"]
    pinball = sk.mean_pinball_loss(labels, predicted, sample_weight=weights, alpha=level)
    assert found["pinball_loss"] == pytest.approx(pinball)
    assert found["coverage"] == pytest.approx(np.average(labels <= predicted, weights=weights))
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(labels, predicted, sample_weight=weights))
    worst = min(
        sk.mean_pinball_loss(labels, np.full(ROWS, each), sample_weight=weights, alpha=level) for each in labels
    )
    assert found["d2"] == pytest.approx(1.0 - pinball / worst)


@pytest.mark.parametrize("loss", ["poisson", *LEVELS])
def test_the_metric_of_a_regression_goes_by_its_loss(loss):
    score, sample = sample_of(loss)
    assert metric("regression", score, sample, loss) == task_metrics("regression", loss, score, sample)["d2"]
    assert metric("regression", score, sample) == metric("regression", score, sample, "squared")
    assert metric("regression", score, sample) != metric("regression", score, sample, loss)


def test_d2_of_squared_loss_is_r2():
    score, sample = sample_of("squared")
    weights = np.stack([sample.weights, np.ones(ROWS)])
    found = d2_of_each(LOSSES["squared"], sample.labels, score, weights)
    np.testing.assert_allclose(found, explained("squared", sample.labels, score, weights), rtol=1e-12)


@pytest.mark.parametrize("loss", ["poisson", *LEVELS])
def test_the_best_constant_explains_nothing_and_a_perfect_score_everything(loss):
    _, sample = sample_of(loss)
    kind = loss_named(loss)
    constant = np.full((ROWS, 1), kind.constant(sample.labels, sample.weights))
    assert metric("regression", constant, sample, loss) == pytest.approx(0.0, abs=1e-12)
    with np.errstate(divide="ignore"):
        perfect = np.log(sample.labels) if loss == "poisson" else sample.labels
    perfect = np.maximum(perfect, -LARGEST_LOG)[:, None]
    assert metric("regression", perfect, sample, loss) == pytest.approx(1.0, abs=1e-6)


def test_where_the_best_constant_is_perfect_another_score_explains_nothing():
    sample = RowSet({}, np.full(5, 3.0), np.ones(5))
    assert metric("regression", np.full((5, 1), 3.0), sample, "quantile") == 1.0
    assert metric("regression", np.full((5, 1), 2.0), sample, "quantile") == 0.0


@pytest.mark.parametrize("loss", ["poisson", "quantile(0.9)"])
def test_an_interval_of_a_difference_is_one_of_d2(loss):
    score, sample = sample_of(loss)
    worse = 0.3 * score
    found = paired_difference("regression", score, worse, sample, seed=1, loss=loss)
    expected = metric("regression", score, sample, loss) - metric("regression", worse, sample, loss)
    assert found.value == pytest.approx(expected)
    assert found.low < found.value < found.high
    assert found != paired_difference("regression", score, worse, sample, seed=1)


def test_labels_that_are_all_zero_have_a_constant_that_is_a_number():
    assert LOSSES["poisson"].constant(np.zeros(3), np.ones(3)) == -LARGEST_LOG


@pytest.mark.parametrize("size", [LARGEST_LOG, 25.0, 1e3, 1e30])
def test_beyond_its_bound_poisson_goes_on_in_a_straight_line(size):
    poisson, one = LOSSES["poisson"], np.ones(1)
    score = np.array([[size]])
    assert poisson.gradient(score, one) == pytest.approx(np.exp(LARGEST_LOG) - 1.0)
    assert poisson.curvatures(score, one) == pytest.approx(np.exp(LARGEST_LOG))
    assert poisson.value(score, one) == pytest.approx(np.exp(LARGEST_LOG) * (1.0 + size - LARGEST_LOG) - size - 1.0)


def test_a_level_is_a_code_of_its_own_beyond_those_of_other_losses():
    codes = [Quantile(thousandths).code for thousandths in range(1, 1000)]
    assert len(set(codes)) == 999
    assert min(codes) > max(LOSSES[name].code for name in LOSSES if name != "quantile")


def test_a_loss_of_classes_is_none_of_a_regression():
    with pytest.raises(SettingsError, match="Logistic is no loss of a regression"):
        regression_loss(LOSSES["logistic"])
