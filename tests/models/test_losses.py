"""Losses by name, and one that comes from outside the package."""

from typing import ClassVar

import numpy as np
import pytest

import fdml
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import LabelError, SettingsError
from fdml.experiments.in_process import train_in_process
from fdml.models import losses
from fdml.models.losses import LOSSES, loss_named, register_loss
from fdml.models.metrics import mean_loss, metric
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.settings import RunSettings, TrainingSettings
from fdml.settings.choices import LOSSES_OF

# A loss as someone else would write it: numpy alone, nothing of it known to the package (docs/models.md).


class Gamma:
    """Half the gamma deviance of a target above 0, for amounts whose spread grows with their mean."""

    code = None
    curvature: ClassVar[float] = 4.0
    has_odds: ClassVar[bool] = False
    link: ClassVar[str] = "log"

    def scores(self, classes):
        return 1

    def value(self, score, labels):
        ratio = np.maximum(labels, 1e-9) * np.exp(-np.clip(score[:, 0], -20.0, 20.0))
        return ratio - np.log(ratio) - 1.0

    def gradient(self, score, labels):
        return 1.0 - np.maximum(labels, 1e-9)[:, None] * np.exp(-np.clip(score, -20.0, 20.0))

    def curvatures(self, score, labels):
        return np.maximum(labels, 1e-9)[:, None] * np.exp(-np.clip(score, -20.0, 20.0))

    def invert_gradient(self, gradient):
        raise SettingsError(f"the gradient of gamma ({len(gradient)} rows) does not show scores; share the labels")

    def constant(self, labels, weights):
        return float(np.log(np.average(labels, weights=weights)))

    def figures(self, score, labels, weights, unit):
        return {"gamma_deviance": 2.0 * float(np.average(self.value(score, labels), weights=weights))}


@pytest.fixture
def gamma(monkeypatch):
    """The loss, registered for one test."""
    monkeypatch.setattr(losses, "LOSSES", dict(LOSSES))
    monkeypatch.setitem(LOSSES_OF, "regression", LOSSES_OF["regression"])
    loss = Gamma()
    register_loss("gamma", loss, "regression")
    return loss


def amounts(rows=600):
    random = np.random.default_rng(3)
    X = random.normal(size=(rows, 4)).astype(np.float32)
    return X, random.gamma(3.0, np.exp(6.0 + X @ [0.6, 0.0, -0.5, 0.3]))


@pytest.mark.usefixtures("gamma")
@pytest.mark.parametrize("kinds", [("linear", "linear"), ("linear", "mlp")])
@pytest.mark.parametrize("joint", ["sum", pytest.param("fm", marks=pytest.mark.slow)])
def test_a_loss_from_outside_trains_parties_in_process(kinds, joint):
    X, amount = amounts()
    sample = RowSet({"a": as_rows(X[:, :2]), "b": as_rows(X[:, 2:])}, amount / amount.mean(), np.ones(len(X)))
    models = dict(zip("ab", (model_settings(kind) for kind in kinds), strict=True))
    plan = Plan(TrainingSettings(epochs=8, batch_size=20, learning_rate=0.02, joint=joint), models, "a", "gamma", 0)
    outcome = train_in_process(plan, sample)
    score = outcome.score(sample.parts)
    assert mean_loss("gamma", score, sample) < 0.5 * mean_loss("gamma", np.zeros_like(score), sample)
    assert metric("regression", score, sample, "gamma") > 0.5


@pytest.mark.usefixtures("gamma")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_loss_from_outside_is_offered_to_settings_and_estimators():
    X, amount = amounts()
    run = RunSettings(parties=("a", "b"), label_party="a", task="regression", loss="gamma")
    assert run.chosen_loss == "gamma"
    model = fdml.FeatureDistributedRegressor(loss="gamma", epochs=8, random_state=0).fit(X, amount)
    predicted = model.predict(X)
    assert predicted.min() > 0.0
    assert predicted.mean() == pytest.approx(amount.mean(), rel=0.1)
    assert model.coef_ == pytest.approx([0.6, 0.0, -0.5, 0.3], abs=0.1)
    with pytest.raises(LabelError, match="below 0"):
        model.fit(X, -amount)


def test_a_head_refuses_a_loss_that_it_cannot_round_alike_everywhere(gamma):
    sample = RowSet({"a": as_rows(np.ones((4, 1), np.float32))}, np.ones(4), np.ones(4))
    plan = Plan(TrainingSettings(epochs=1, joint="head"), {"a": model_settings()}, "a", "gamma", 0)
    with pytest.raises(SettingsError, match=f"{type(gamma).__name__} has no compiled gradient; set training.joint"):
        train_in_process(plan, sample)


@pytest.mark.usefixtures("gamma")
def test_a_name_is_taken_once():
    for name in ("gamma", "squared", "quantile(0.9)"):
        with pytest.raises(SettingsError, match="already; choose another name"):
            register_loss(name, Gamma(), "regression")


def test_what_cannot_be_trained_with_is_refused(monkeypatch):
    monkeypatch.setattr(losses, "LOSSES", dict(LOSSES))
    with pytest.raises(SettingsError, match=r"needs the methods `constant` and `figures`; see docs/models\.md"):
        register_loss("half", LOSSES["logistic"], "regression")
    with pytest.raises(SettingsError, match="task 'binary' and has no use for `constant`"):
        register_loss("gamma", Gamma(), "binary")
    coded = Gamma()
    coded.code = 3
    with pytest.raises(SettingsError, match="has the code 3; kernels know built-in losses alone, take None"):
        register_loss("gamma", coded, "regression")
    assert "gamma" not in LOSSES_OF["regression"]


def test_a_loss_that_there_is_not_is_named_with_those_that_there_are():
    with pytest.raises(SettingsError, match="there is no loss 'gamma'; there are logistic, hinge, pairwise, squared"):
        loss_named("gamma")


def test_a_quantile_is_found_by_its_level():
    assert loss_named("quantile(0.9)").level == 0.9
    assert loss_named("quantile").level == 0.5
