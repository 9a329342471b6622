"""Kinds of models: what is known of each, and one that comes from outside the package."""

from typing import ClassVar, Literal

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows, row_count, take, to_dense
from fdml.errors import DataError, SettingsError
from fdml.experiments.comparison_input import contenders
from fdml.experiments.estimators import FeatureDistributedClassifier
from fdml.experiments.in_process import train_in_process
from fdml.models import registry
from fdml.models.compiled import CompiledModel
from fdml.models.initialisation import generator
from fdml.models.kind import ModelKind
from fdml.models.learning_rate import default_rate
from fdml.models.metrics import mean_loss
from fdml.models.registry import build_model, kind_named, kinds, model_settings, register
from fdml.party.plan import Plan
from fdml.party.settings import read_party
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.noise import NoiseKey
from fdml.settings import ModelSettings, TrainingSettings
from tests.models.random_updates import build

# A kind as someone else would write it: numpy alone, nothing of it known to the package.


class CosineSettings(ModelSettings):
    kind: Literal["cosine"] = "cosine"
    waves: int = 8


class CosineModel:
    """Linear in random cosines of the features."""

    concurrent: ClassVar[bool] = False

    def __init__(self, settings, spec):
        random = generator(*spec.key)
        self._l2, self._bias = settings.l2, spec.bias
        self._directions = random.normal(size=(spec.inputs, settings.waves))
        self._weights = np.zeros((settings.waves + 1, spec.width))

    @property
    def dtype(self):
        return self._weights.dtype

    def _waves(self, rows, index):
        waves = np.cos(to_dense(take(rows, index)) @ self._directions)
        return np.column_stack([waves, np.full(len(index), float(self._bias))])

    def predict(self, rows, start=0, stop=None):
        if len(self._directions) != to_dense(take(rows, np.arange(0))).shape[1]:
            raise DataError("rows have another number of features")
        return self._waves(rows, np.arange(start, row_count(rows) if stop is None else stop)) @ self._weights

    def learn(self, rows, block, scores):
        for number, rate in enumerate(block.rates):
            chosen = block.batch(number)
            waves = self._waves(rows, block.start + chosen)
            gradient = scores.gradient(chosen, waves @ self._weights)
            self._weights -= rate * (waves.T @ gradient / len(chosen) + self._l2 * self._weights)

    def penalty(self):
        return 0.5 * self._l2 * float(np.square(self._weights).sum())

    def state(self):
        return {"weights": self._weights.copy(), "directions": self._directions.copy()}

    def restore(self, state):
        self._weights, self._directions = state["weights"].copy(), state["directions"].copy()


COSINE = ModelKind("cosine", "cosines", CosineSettings, CosineModel)


@pytest.fixture
def cosine(monkeypatch):
    """The kind, registered for one test."""
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    register(COSINE)
    return COSINE


def dataset(rows=400):
    """The label depends on a wave of the second party's feature, which no linear model finds."""
    random = np.random.default_rng(5)
    x = random.normal(size=(rows, 3)).astype(np.float32)
    labels = (x[:, 0] + 3.0 * np.cos(2.0 * x[:, 2]) > 0).astype(np.float64)
    return RowSet({"a": as_rows(x[:, :1]), "b": as_rows(x[:, 1:])}, labels, np.ones(rows))


@pytest.mark.usefixtures("cosine")
def test_a_kind_from_outside_trains_beside_a_linear_party():
    sample, training = dataset(), TrainingSettings(epochs=10, batch_size=20, learning_rate=0.2)
    losses = {}
    for kind in ("linear", "cosine"):
        models = {"a": model_settings(), "b": model_settings(kind, **({"waves": 40} if kind == "cosine" else {}))}
        outcome = train_in_process(Plan(training, models, "a", "logistic", 2), sample)
        losses[kind] = mean_loss("logistic", outcome.score(sample.parts), sample)
    assert isinstance(outcome.models["b"], CosineModel)
    assert losses["cosine"] < 0.7 * losses["linear"]


@pytest.mark.usefixtures("cosine")
def test_a_kind_from_outside_is_read_from_a_party_toml(tmp_path):
    (tmp_path / "party.toml").write_text(
        'party = "b"\nfederation = "federation.toml"\n[data]\npath = "b.csv"\n[model]\nkind = "cosine"\nwaves = 3\nl2 = 0.5\n'
    )
    assert read_party(tmp_path / "party.toml").model == CosineSettings(waves=3, l2=0.5)


@pytest.mark.usefixtures("cosine")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_kind_from_outside_is_offered_to_comparisons_and_estimators():
    (contender,) = contenders(["cosine"], ["a", "b"], TrainingSettings(), 0.1)
    assert contender.name == "cosines"
    assert contender.models["a"] == CosineSettings(l2=0.1)
    sample = dataset()
    X = np.column_stack([sample.parts["a"].values, sample.parts["b"].values])
    estimator = FeatureDistributedClassifier(
        [[0], [1, 2]], ["linear", {"kind": "cosine", "waves": 40}], epochs=10, learning_rate=0.2, batch_size=20,
        random_state=0,
    )  # fmt: skip
    assert estimator.fit(X, sample.labels).score(X, sample.labels) > 0.8


def party_toml(folder, model):
    (folder / "party.toml").write_text(
        f'party = "b"\nfederation = "federation.toml"\n[data]\npath = "b.csv"\n[model]\n{model}\n'
    )
    return folder / "party.toml"


def test_a_kind_that_nobody_registered_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no model kind 'forest'; there are linear, fm, mlp, torch"):
        read_party(party_toml(tmp_path, 'kind = "forest"'))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ('kind = "linear"\nhidden = [4]', r"unknown setting 'hidden' of model kind 'linear'; known here: kind, l2, "),
        ('kind = "fm"\nhidden = [4]', r"unknown setting 'hidden' of model kind 'fm'; known here: .*, factors$"),
        (
            'kind = "mlp"\nfactors = 3',
            r"unknown setting 'factors' of model kind 'mlp'; known here: .*, hidden, dropout$",
        ),
        ('kind = "mlp"\nhiden = [4]', r"unknown setting 'hiden' of model kind 'mlp'; did you mean 'hidden'\?"),
        ("factors = 3", r"unknown setting 'factors' of model kind 'linear'"),
        ('kind = "torch"', r"setting 'module' of model kind 'torch' is missing"),
        ("kind = 3", r"there is no model kind 3; there are linear, "),
    ],
)
def test_a_setting_that_does_not_fit_the_kind_is_refused_with_those_that_do(tmp_path, model, message):
    with pytest.raises(SettingsError, match=message):
        read_party(party_toml(tmp_path, model))


def test_without_a_model_a_party_is_linear(tmp_path):
    assert read_party(party_toml(tmp_path, "l2 = 0.1")).model == model_settings("linear", l2=0.1)


def test_the_model_of_a_party_is_written_with_all_its_settings(tmp_path):
    party = read_party(party_toml(tmp_path, 'kind = "mlp"\nhidden = [4]'))
    assert party.model_dump()["model"]["hidden"] == (4,)
    assert '"hidden":[4]' in party.model.model_dump_json()


def test_a_name_is_taken_once():
    register(kind_named("fm"))
    with pytest.raises(SettingsError, match=r"there is a model kind 'fm' already; choose another name"):
        register(ModelKind("fm", "other", CosineSettings, CosineModel))


def test_rows_that_no_encoder_makes_are_refused():
    with pytest.raises(SettingsError, match=r"model kind 'cosine' wants 'raw' rows; encoders make numeric"):
        register(ModelKind("cosine", "cosines", CosineSettings, CosineModel, encoding="raw"))
    assert "cosine" not in {kind.name for kind in kinds()}


def test_settings_that_name_another_kind_are_refused():
    with pytest.raises(SettingsError, match=r"settings of model kind 'wave' need the field `kind: ... = \"wave\"`"):
        register(ModelKind("wave", "waves", CosineSettings, CosineModel))


@pytest.mark.usefixtures("cosine")
def test_a_kind_that_cannot_be_clipped_is_refused_for_dp_sgd_with_those_that_can():
    dp_sgd = DpSgd(1.0, 1.0, NoiseKey(b"a secret of this run"))
    with pytest.raises(SettingsError, match=r"model.kind is 'cosine'.*; take linear, mlp or torch, or leave"):
        build(model_settings("cosine"), 3, 1, dp_sgd=dp_sgd)


@pytest.mark.parametrize("kind", registry.compiled_kinds())
def test_the_kind_decides_what_is_built(kind):
    model = build(model_settings(kind, precision="double"), 3, 2)
    assert isinstance(model, CompiledModel)
    assert model.dtype == np.float64
    assert {type(build(model_settings(other), 3, 2)) for other in ("linear", "fm", "mlp")} >= {type(model)}


def test_every_default_step_is_the_common_one_but_those_that_were_measured():
    special = {kind.name for kind in kinds() if kind.default_rate is not default_rate}
    assert special == {"linear", "mlp", "trees", "trees+mlp"}


def test_settings_of_one_kind_build_that_kind_and_no_other():
    names = {type(build_model(model_settings(kind), spec())).__name__ for kind in ("linear", "fm", "mlp")}
    assert names == {"LinearModel", "FactorizationMachine", "Perceptron"}


def spec():
    return registry.ModelSpec(inputs=3, width=1, bias=True, key=(7,))


@pytest.mark.parametrize(("kind", "l2"), [("linear", 1 / 400), ("fm", 0.15 / 20), ("mlp", 0.15 / 20)])
def test_what_is_left_to_the_rules_of_a_kind_follows_from_the_number_of_rows(kind, l2):
    found = registry.resolved_model(model_settings(kind), 400)
    assert found.update_rule == ("factored" if kind == "mlp" else "adam")
    assert found.weight_decay == pytest.approx(l2)


@pytest.mark.parametrize(("entries", "times"), [(0.0, 1.0), (5.0, 1.0), (10.0, 2.0), (48.0, 9.6)])
def test_weights_are_smaller_where_a_score_is_the_sum_of_many(entries, times):
    found = registry.resolved_model(model_settings("linear"), 400, entries)
    assert found.weight_decay == pytest.approx(times / 400)
    assert registry.resolved_model(model_settings("mlp"), 400, entries).weight_decay == pytest.approx(0.15 / 20)


def test_what_is_set_is_not_replaced():
    settings = model_settings(optimizer="momentum", l2=0.25)
    assert registry.resolved_model(settings, 1000, 30.0) is settings


def test_a_party_with_noise_in_its_training_takes_plain_sgd():
    assert registry.resolved_model(model_settings(), 1000, private=True).update_rule == "sgd"


def test_with_noise_in_training_no_penalty_follows_from_the_features():
    assert registry.resolved_model(model_settings(), 1000, 30.0, private=True).weight_decay == 1 / 1000
