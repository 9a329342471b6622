"""Estimators of counts, rates and quantiles, beside scikit-learn's."""

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor, QuantileRegressor
from sklearn.metrics import d2_pinball_score, d2_tweedie_score

from fdml import FeatureDistributedClassifier, FeatureDistributedRegressor
from fdml.errors import LabelError, SettingsError

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
WEIGHTS = np.array([0.5, -0.3, 0.2, 0.4])
TRAIN, TEST = slice(0, 1500), slice(1500, None)


def drawn(seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(2000, 4))
    return random, X, X @ WEIGHTS


@pytest.fixture(scope="module")
def counts():
    random, X, mean = drawn()
    return X, random.poisson(np.exp(0.5 + mean))


@pytest.fixture(scope="module")
def amounts():
    random, X, mean = drawn()
    return X, 500.0 + 1000.0 * (mean + random.standard_exponential(len(X)))


def fitted(data, **parameters):
    X, y = data
    return FeatureDistributedRegressor(**{"epochs": 30, "random_state": 0, **parameters}).fit(X[TRAIN], y[TRAIN])


def test_counts_are_predicted_as_well_as_by_a_pooled_poisson_regression(counts):
    X, y = counts
    ours, theirs = fitted(counts, loss="poisson"), PoissonRegressor(alpha=0.0).fit(X[TRAIN], y[TRAIN])
    predicted = ours.predict(X[TEST])
    assert predicted.min() > 0.0
    assert d2_tweedie_score(y[TEST], predicted, power=1) > theirs.score(X[TEST], y[TEST]) - 0.01
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.03)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=0.03)


def test_counts_in_other_units_have_the_same_model(counts):
    X, y = counts
    plain, scaled = (fitted((X, unit * y), loss="poisson", epochs=3).predict(X[TEST]) for unit in (1.0, 1000.0))
    np.testing.assert_allclose(scaled, 1000.0 * plain, rtol=1e-9)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_a_quantile_is_predicted_as_well_as_by_a_pooled_quantile_regression(amounts, level):
    X, y = amounts
    ours = fitted(amounts, loss="quantile", quantile=level).predict(X[TEST])
    pooled = QuantileRegressor(quantile=level, alpha=0.0, solver="highs").fit(X[TRAIN], y[TRAIN])
    theirs = d2_pinball_score(y[TEST], pooled.predict(X[TEST]), alpha=level)
    assert d2_pinball_score(y[TEST], ours, alpha=level) > theirs - 0.01
    assert np.mean(y[TEST] <= ours) == pytest.approx(level, abs=0.05)


def test_without_a_level_a_quantile_is_the_median(amounts):
    X, _ = amounts
    found, wanted = (
        fitted(amounts, loss="quantile", quantile=level, epochs=2).predict(X[TEST]) for level in (None, 0.5)
    )
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [{"model": "mlp"}, {"joint": "fm"}, {"joint": "head", "model": "mlp"}])
@pytest.mark.parametrize("loss", ["poisson", "quantile"])
def test_other_models_and_joint_functions_learn_them(counts, amounts, loss, parameters):
    data = counts if loss == "poisson" else amounts
    X, y = data
    predicted = fitted(data, loss=loss, epochs=12, **parameters).predict(X[TEST])
    measure = d2_pinball_score(y[TEST], predicted)
    if loss == "poisson":
        measure = d2_tweedie_score(y[TEST], predicted, power=1)
    assert measure > 0.2


@pytest.mark.parametrize("parameters", [{"loss": "poisson"}, {"loss": "quantile", "quantile": 0.9}])
def test_a_saved_estimator_predicts_the_same(counts, tmp_path, parameters):
    model = fitted(counts, epochs=2, **parameters)
    model.save(tmp_path / "fitted.npz")
    loaded = FeatureDistributedRegressor.load(tmp_path / "fitted.npz")
    np.testing.assert_array_equal(loaded.predict(counts[0]), model.predict(counts[0]))


def test_partial_fit_has_the_mean_of_its_first_rows(counts):
    X, y = counts
    model = FeatureDistributedRegressor(loss="poisson", random_state=0)
    for first in range(0, 1500, 500):
        model.partial_fit(X[first : first + 500], y[first : first + 500])
    assert model.predict(X).mean() == pytest.approx(y.mean(), rel=0.2)


def test_what_does_not_go_together_is_refused(counts):
    X, y = counts
    with pytest.raises(LabelError, match="the label in row 3 is below 0"):
        FeatureDistributedRegressor(loss="poisson").fit(X[:5], [0, 1, 2, -1, 3])
    with pytest.raises(SettingsError, match="loss 'poisson' does not fit task 'binary'"):
        FeatureDistributedClassifier(loss="poisson").fit(X, y > 1)
    with pytest.raises(SettingsError, match=r"quantile is 0\.9, and loss 'squared' has none"):
        FeatureDistributedRegressor(quantile=0.9).fit(X, y)
    with pytest.raises(
        SettingsError, match=r'loss "pairwise" compares rows of groups, which only runs have; start one'
    ):
        FeatureDistributedClassifier(loss="pairwise").fit(X, y > 1)
