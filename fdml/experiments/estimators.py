"""scikit-learn's front door: the columns of one matrix are dealt to parties that train jointly.

For trying out what joint training would give, before any company is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fdml.data.label_encoding import LabelEncoding, fit_labels
from fdml.data.partition import halves, number_groups
from fdml.data.row_set import RowSet, mean_one
from fdml.data.rows import Rows, as_rows, columns
from fdml.errors import DataError, SettingsError
from fdml.experiments.dataset import shuffled_rows
from fdml.experiments.in_process import train_in_process
from fdml.models.archive import read_archive, write_archive
from fdml.models.losses import LOSSES, Floats, Logistic, Softmax
from fdml.models.model import Model, State
from fdml.models.objective import objective_for
from fdml.models.registry import DEFAULT_KIND, kind_named, kinds, model_settings
from fdml.party.plan import Plan, joint_score
from fdml.settings import LossName, ModelSettings, Task, TrainingSettings, loss_for

ModelChoice = str | Mapping[str, Any] | Callable[[int, int], Any]
"""A kind, its settings as a mapping with its `kind`, or a function that makes a torch module."""
_TRAINING = (
    "epochs",
    "batch_size",
    "batches_per_block",
    "passes",
    "lookahead",
    "staleness",
    "echo",
    "learning_rate",
    "lr_decay",
)
_MODEL = ("hidden", "factors", "l2", "optimizer", "momentum")
"""Settings of models that are parameters here; a kind is given those that it has."""


class FeatureDistributed(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share.

    Parameters
    ----------
    groups : which columns belong to which party, a list of ranges, lists of column
        numbers or lists of column names; they may overlap. None cuts the columns in
        two. The first party holds the labels.
    model : a kind of model ("linear", "fm", "mlp", or one that was registered); a mapping
        with its settings, {"kind": "mlp", "hidden": [32]}; or a function of (inputs, width)
        that returns a torch.nn.Module; or a list with one of these per party.
    learning_rate : "auto" fits it to the rows' lengths at each party.
    random_state : seeds orders and starting parameters.

    The others are named and explained in `fdml.settings`.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[int] | Sequence[str]] | None = None,
        model: ModelChoice | Sequence[ModelChoice] = "linear",
        *,
        loss: LossName | None = None,
        hidden: Sequence[int] = (64,),
        factors: int = 8,
        l2: float = 1e-4,
        optimizer: str = "sgd",
        momentum: float = 0.9,
        learning_rate: float | str = "auto",
        lr_decay: str = "linear",
        epochs: int = 20,
        batch_size: int = 100,
        batches_per_block: int | str = 16,
        passes: int = 1,
        lookahead: int = 1,
        staleness: int = 0,
        echo: float | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.groups = groups
        self.model = model
        self.loss = loss
        self.hidden = hidden
        self.factors = factors
        self.l2 = l2
        self.optimizer = optimizer
        self.momentum = momentum
        self.learning_rate = learning_rate
        self.lr_decay = lr_decay
        self.epochs = epochs
        self.batch_size = batch_size
        self.batches_per_block = batches_per_block
        self.passes = passes
        self.lookahead = lookahead
        self.staleness = staleness
        self.echo = echo
        self.warm_start = warm_start
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to a .npz file of plain arrays; nothing in it is code.

        Torch modules are not stored, only their parameters: give `load` the same `model`.
        """
        check_is_fitted(self)
        write_archive(Path(path), self._facts(), {name: model.state() for name, model in self.models_.items()})

    @classmethod
    def load(cls, path: str | Path, model: ModelChoice | Sequence[ModelChoice] | None = None) -> Self:
        """Read an estimator that `save` wrote."""
        facts, states = read_archive(Path(path))
        if facts["kind"] != cls.__name__:
            raise DataError(f"{str(path)!r} holds a {facts['kind']}; load it with {facts['kind']}.load")
        estimator = cls(**{**facts["parameters"], **({} if model is None else {"model": model})})
        estimator._restore(facts, states)
        return estimator

    def _fit(self, X: Any, labels: NDArray[np.generic], task: Task, sample_weight: ArrayLike | None) -> Self:
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        going_on = self.warm_start and hasattr(self, "models_")
        self.code_ = fit_labels(task, labels, weights)
        self.groups_ = self._numbered_groups()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.precision_ = "double" if X.dtype == np.float64 else "single"
        plan = self._plan(seed)
        sample = RowSet(self._parts(X), self.code_.transform(labels), mean_one(weights, len(weights)))
        start = {name: model.state() for name, model in self.models_.items()} if going_on else None
        outcome = train_in_process(plan, sample.take(shuffled_rows(len(sample), seed)), start=start)
        self.models_: dict[str, Model] = dict(outcome.models)
        self.n_iter_ = self.epochs
        return self

    def _plan(self, seed: int) -> Plan:
        settings = {name: self._model_settings(choice) for name, choice in self._choices().items()}
        training = TrainingSettings(**{key: getattr(self, key) for key in _TRAINING}, seed=seed)
        loss = loss_for(self.code_.task, self.loss)
        return Plan(training, settings, next(iter(settings)), loss, self.code_.class_count)

    def _model_settings(self, choice: ModelChoice) -> ModelSettings:
        """The settings of one party's model: those of its own come before the parameters that all parties share."""
        if callable(choice):
            taking = next(kind for kind in kinds() if kind.function_setting is not None)
            own: dict[str, Any] = {"kind": taking.name, str(taking.function_setting): choice}
        else:
            own = {"kind": choice} if isinstance(choice, str) else {"kind": DEFAULT_KIND, **choice}
        takes = kind_named(own["kind"]).settings.model_fields
        shared = {"precision": self.precision_, **{key: getattr(self, key) for key in _MODEL}}
        return model_settings(**{**{key: value for key, value in shared.items() if key in takes}, **own})

    def _choices(self) -> dict[str, ModelChoice]:
        names = [f"party {number}" for number in range(len(self.groups_))]
        if isinstance(self.model, str | Mapping) or callable(self.model):
            return dict.fromkeys(names, self.model)
        chosen = list(self.model)
        if len(chosen) != len(names):
            raise SettingsError(f"{len(chosen)} models for {len(names)} groups of columns; give one model per group")
        return dict(zip(names, chosen, strict=True))

    def _numbered_groups(self) -> list[list[int]]:
        groups = halves(self.n_features_in_) if self.groups is None else self.groups
        names = [str(name) for name in getattr(self, "feature_names_in_", range(self.n_features_in_))]
        return number_groups(groups, names)

    def _parts(self, X: Any) -> dict[str, Rows]:
        rows = as_rows(X)
        return {f"party {at}": columns(rows, np.array(group)) for at, group in enumerate(self.groups_)}

    def _facts(self) -> dict[str, Any]:
        choices = [self.model] if isinstance(self.model, str | Mapping) or callable(self.model) else self.model
        plain = not any(callable(choice) for choice in choices)
        return {
            "kind": type(self).__name__,
            "parameters": {
                **self.get_params(deep=False),
                "model": self.model if plain else None,
                "groups": None if self.groups is None else [list(group) for group in self.groups],
                "random_state": self.random_state if isinstance(self.random_state, int) else None,
            },
            "features": self.n_features_in_,
            "feature_names": list(getattr(self, "feature_names_in_", [])),
            "groups": self.groups_,
            "precision": self.precision_,
            "task": self.code_.task,
            "classes": None if self.code_.classes is None else self.code_.classes.tolist(),
            "class_type": None if self.code_.classes is None else self.code_.classes.dtype.str,
            "centre": self.code_.centre,
            "spread": self.code_.spread,
        }

    def _restore(self, facts: Mapping[str, Any], states: Mapping[str, State]) -> None:
        if self.model is None:
            raise SettingsError("the saved estimator has torch parties; give load the same model it was made with")
        classes = None if facts["classes"] is None else np.array(facts["classes"], dtype=facts["class_type"])
        self.code_ = LabelEncoding(facts["task"], classes, facts["centre"], facts["spread"])
        self.n_features_in_ = facts["features"]
        if facts["feature_names"]:
            self.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
        self.groups_, self.precision_, self.n_iter_ = facts["groups"], facts["precision"], self.epochs
        plan = self._plan(seed=0)
        self.models_ = {
            name: plan.model(name, len(group), state=states[name])
            for name, group in zip(plan.models, self.groups_, strict=True)
        }

    def _score(self, X: Any) -> Floats:
        check_is_fitted(self)
        checked = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        objective = objective_for(loss_for(self.code_.task, self.loss), self.code_.class_count)
        return joint_score(self.models_, self._parts(checked), objective)


def _gives_probabilities(estimator: FeatureDistributed) -> bool:
    if estimator.loss == "hinge":
        raise AttributeError('loss="hinge" gives no probabilities; use decision_function, or loss="logistic"')
    return True


class FeatureDistributedClassifier(ClassifierMixin, FeatureDistributed):  # type: ignore[misc]
    """Two or more classes; `loss` is "logistic" or "hinge" for two, "softmax" for more."""

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train all parties jointly."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        labels = np.asarray(y)
        labels = labels.astype(str) if labels.dtype.kind == "O" else labels
        return self._fit(X, labels, "multiclass" if len(np.unique(labels)) > 2 else "binary", sample_weight)

    @property
    def classes_(self) -> NDArray[np.generic]:
        """The classes, sorted; columns of `predict_proba` are in this order."""
        check_is_fitted(self, "code_")
        classes = self.code_.classes
        return np.zeros(0) if classes is None else classes

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The joint score: one column per class, or one number per row for two classes."""
        score = self._score(X).astype(np.float64)
        return score[:, 0] if len(self.classes_) == 2 else score

    def predict(self, X: Any) -> NDArray[np.generic]:
        """The most likely class of each row."""
        score = self.decision_function(X)
        chosen: NDArray[np.generic] = self.classes_[
            score.argmax(axis=1) if score.ndim == 2 else (score > 0).astype(int)
        ]
        return chosen

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class."""
        check_is_fitted(self)
        link: Logistic | Softmax = LOSSES[loss_for(self.code_.task, self.loss)]  # type: ignore[assignment]
        return link.probability(self._score(X))


class FeatureDistributedRegressor(RegressorMixin, FeatureDistributed):  # type: ignore[misc]
    """One target; the loss is squared."""

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train all parties jointly."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True)
        return self._fit(X, np.asarray(y), "regression", sample_weight)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The target of each row."""
        score = self._score(X)
        return self.code_.inverse_transform(score)
