"""What the two estimators share: their parameters, and how the columns of one matrix are split among parties."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fdml.data.label_encoding import LabelEncoding, fit_labels
from fdml.data.partition import halves, number_groups
from fdml.data.row_set import RowSet, mean_one
from fdml.data.rows import Rows, as_rows, columns
from fdml.errors import DataError, SettingsError
from fdml.experiments.coefficients import are_linear, coefficients
from fdml.experiments.estimator_fitting import EarlyStopping, Fitted, fit_parties, warn_unless_converged
from fdml.experiments.input_scaling import InputScaling
from fdml.models.archive import read_archive, write_archive
from fdml.models.losses import Floats, loss_named
from fdml.models.model import Model, State
from fdml.models.objective import objective_for
from fdml.models.registry import DEFAULT_KIND, kind_named, kinds, model_settings
from fdml.party.plan import Plan, joint_score
from fdml.settings import ModelSettings, TrainingSettings
from fdml.settings.choices import Link, LossName, Task
from fdml.settings.losses import loss_without_groups

ModelChoice = str | Mapping[str, Any] | Callable[[int, int], Any]
"""A kind, its settings as a mapping with its `kind`, or a function that makes a torch module."""
Group = Sequence[int] | Sequence[str]
Groups = Sequence[Group] | Mapping[str, Group]
_TRAINING = (
    "epochs",
    "batch_size",
    "batches_per_block",
    "passes",
    "lookahead",
    "staleness",
    "echo",
    "joint",
    "joint_width",
    "learning_rate",
    "lr_decay",
)
_MODEL = ("hidden", "factors", "l2", "optimizer", "momentum")
"""Settings of models that are parameters here; a kind is given those that it has."""
_SCALING = ""
"""The place of the scaling in an archive; a party's name is never empty."""


class FeatureDistributed(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: parties that each hold some columns, trained jointly in this process."""

    def __init__(
        self,
        groups: Groups | None = None,
        model: ModelChoice | Sequence[ModelChoice] = "linear",
        *,
        loss: LossName | None = None,
        quantile: float | None = None,
        hidden: Sequence[int] = (64,),
        factors: int = 8,
        l2: float | str = "auto",
        optimizer: str = "auto",
        momentum: float = 0.9,
        learning_rate: float | str = "auto",
        lr_decay: str = "linear",
        epochs: int | str = "auto",
        batch_size: int | str = "auto",
        batches_per_block: int | str = "auto",
        passes: int = 1,
        lookahead: int | str = "auto",
        staleness: int = 0,
        echo: float | None = None,
        joint: str = "sum",
        joint_width: int | None = None,
        scale: str = "standard",
        class_weight: str | Mapping[Any, float] | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        warm_start: bool = False,
        verbose: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.groups = groups
        self.model = model
        self.loss = loss
        self.quantile = quantile
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
        self.joint = joint
        self.joint_width = joint_width
        self.scale = scale
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.verbose = verbose
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
        states: dict[str, State] = {name: model.state() for name, model in self.models_.items()}
        states[_SCALING] = {"centre": self.scaling_.centre, "spread": self.scaling_.spread}
        write_archive(Path(path), self._facts(), states)

    @classmethod
    def load(cls, path: str | Path, model: ModelChoice | Sequence[ModelChoice] | None = None) -> Self:
        """Read an estimator that `save` wrote."""
        facts, states = read_archive(Path(path))
        if facts["kind"] != cls.__name__:
            raise DataError(f"{str(path)!r} holds a {facts['kind']}; load it with {facts['kind']}.load")
        parameters = {**facts["parameters"], "hidden": tuple(facts["parameters"]["hidden"])}
        estimator = cls(**{**parameters, **({} if model is None else {"model": model})})
        estimator._restore(facts, states)
        return estimator

    def _weights(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coefficients `(features, outputs)` and intercept of linear parties, in the units of the input and target."""
        check_is_fitted(self)
        if not are_linear(self.models_):
            raise AttributeError('only linear parties have coefficients; use model="linear" for every party')
        outputs = self.code_.class_count if self.code_.class_count > 2 else 1
        weights, intercept = coefficients(self.models_, self.groups_, self.scaling_, outputs)
        if self.code_.link == "log":
            return weights, intercept + np.log(self.code_.spread)
        return weights * self.code_.spread, intercept * self.code_.spread + self.code_.centre

    def _fit(self, X: Any, labels: NDArray[np.generic], weights: NDArray[np.float64], task: Task) -> Self:
        """Train from scratch, or with `warm_start` from where the last fit ended."""
        going_on = self.warm_start and hasattr(self, "models_")
        if not going_on:
            self.rows_ = len(weights)
        self.code_ = fit_labels(task, labels, weights, self._link(task))
        self._begin(X, weights)
        start = {name: model.state() for name, model in self.models_.items()} if going_on else None
        stopping = EarlyStopping(self.validation_fraction, self.n_iter_no_change) if self.early_stopping else None
        rows = self._row_set(X, labels, weights)
        fitted = self._train(rows, self._plan(self._seed(), rows.parts), start, stopping)
        self.loss_curve_, self.validation_curve_ = fitted.losses, fitted.validation
        self.n_iter_ = len(fitted.losses)
        if stopping is None:
            warn_unless_converged(fitted.losses)
        return self

    def _partial_fit(self, X: Any, labels: NDArray[np.generic], weights: NDArray[np.float64]) -> Self:
        """Go once over these rows, from where the parties are; scaling and labels are as in the first call."""
        first = not hasattr(self, "models_")
        if first:
            self.rows_ = len(weights)
            self._begin(X, weights)
            self.loss_curve_, self.validation_curve_, self.n_iter_ = [], [], 0
        start = None if first else {name: model.state() for name, model in self.models_.items()}
        rows, decay = self._row_set(X, labels, weights), "constant" if self.lr_decay == "linear" else self.lr_decay
        plan = self._plan(self._seed(), rows.parts, epochs=1, lr_decay=decay)
        fitted = self._train(rows, plan, start, None)
        self.loss_curve_ = [*self.loss_curve_, *fitted.losses]
        self.n_iter_ += 1
        return self

    def _begin(self, X: Any, weights: NDArray[np.float64]) -> None:
        """What is learned of the columns before training."""
        self.groups_ = self._numbered_groups()
        self._remark_on_groups()
        self.precision_ = "double" if X.dtype == np.float64 else "single"
        if self.scale not in ("standard", "none"):
            raise SettingsError(f"scale is {self.scale!r}; it can be 'standard' or 'none'")
        scaled = self.scale == "standard"
        self.scaling_ = InputScaling.fit(X, weights) if scaled else InputScaling.none(X.shape[1])

    def _train(
        self, rows: RowSet, plan: Plan, start: Mapping[str, State] | None, stopping: EarlyStopping | None
    ) -> Fitted:
        fitted = fit_parties(
            plan,
            rows,
            epochs=plan.agreed(self.rows_).epochs,
            start=start,
            stopping=stopping,
            verbose=bool(self.verbose),
        )
        self.models_: dict[str, Model] = fitted.models
        return fitted

    @property
    def _loss(self) -> LossName:
        return loss_without_groups(self.code_.task, self.loss, self.quantile)

    def _link(self, task: Task) -> Link:
        return loss_named(loss_without_groups(task, self.loss, self.quantile)).link

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _checked_weights(self, X: Any, sample_weight: ArrayLike | None) -> NDArray[np.float64]:
        weights: NDArray[np.float64] = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        return weights

    def _row_set(self, X: Any, labels: NDArray[np.generic], weights: NDArray[np.float64]) -> RowSet:
        return RowSet(self._parts(X), self.code_.transform(labels), mean_one(weights, len(weights)))

    def _plan(self, seed: int, parts: Mapping[str, Rows], **changes: Any) -> Plan:
        settings = {name: self._model_settings(choice) for name, choice in self._choices().items()}
        training = TrainingSettings(**{key: getattr(self, key) for key in _TRAINING}, seed=seed)
        changed = training.model_copy(update=changes)
        plan = Plan(changed, settings, next(iter(settings)), self._loss, self.code_.class_count)
        return plan.resolved(self.rows_, parts)

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
        names = self._party_names()
        if isinstance(self.model, str | Mapping) or callable(self.model):
            return dict.fromkeys(names, self.model)
        chosen = list(self.model)
        if len(chosen) != len(names):
            raise SettingsError(f"{len(chosen)} models for {len(names)} groups of columns; give one model per group")
        return dict(zip(names, chosen, strict=True))

    def _party_names(self) -> list[str]:
        if isinstance(self.groups, Mapping):
            return [str(name) for name in self.groups]
        return [f"party {number}" for number in range(len(self.groups_))]

    def _numbered_groups(self) -> list[list[int]]:
        groups = self.groups
        if groups is None:
            groups = halves(self.n_features_in_)
        names = [str(name) for name in getattr(self, "feature_names_in_", range(self.n_features_in_))]
        return number_groups(groups.values() if isinstance(groups, Mapping) else groups, names)

    def _remark_on_groups(self) -> None:
        """Warn of columns that no party has, or several."""
        counts = np.bincount([column for group in self.groups_ for column in group], minlength=self.n_features_in_)
        names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_))
        for few, found in (("in no group, so no party learns from it", counts == 0), ("in several groups", counts > 1)):
            if found.any():
                example = names[int(np.argmax(found))]
                more = f" (and {int(found.sum()) - 1} more)" if found.sum() > 1 else ""
                warnings.warn(f"column {example!s}{more} is {few}", UserWarning, stacklevel=5)

    def _parts(self, X: Any) -> dict[str, Rows]:
        rows = as_rows(self.scaling_.apply(X))
        names = self._party_names()
        return {name: columns(rows, np.array(group)) for name, group in zip(names, self.groups_, strict=True)}

    def _facts(self) -> dict[str, Any]:
        choices = [self.model] if isinstance(self.model, str | Mapping) or callable(self.model) else self.model
        plain = not any(callable(choice) for choice in choices)
        return {
            "kind": type(self).__name__,
            "parameters": {
                **self.get_params(deep=False),
                "model": self.model if plain else None,
                "groups": _plain_groups(self.groups),
                "random_state": self.random_state if isinstance(self.random_state, int) else None,
                "class_weight": self.class_weight if isinstance(self.class_weight, str) else None,
            },
            "features": self.n_features_in_,
            "feature_names": list(getattr(self, "feature_names_in_", [])),
            "groups": self.groups_,
            "precision": self.precision_,
            "rows": self.rows_,
            "task": self.code_.task,
            "classes": None if self.code_.classes is None else self.code_.classes.tolist(),
            "class_type": None if self.code_.classes is None else self.code_.classes.dtype.str,
            "centre": self.code_.centre,
            "spread": self.code_.spread,
            "link": self.code_.link,
            "losses": self.loss_curve_,
            "validation": self.validation_curve_,
        }

    def _restore(self, facts: Mapping[str, Any], states: Mapping[str, State]) -> None:
        if self.model is None:
            raise SettingsError("the saved estimator has torch parties; give load the same model it was made with")
        classes = None if facts["classes"] is None else np.array(facts["classes"], dtype=facts["class_type"])
        self.code_ = LabelEncoding(
            facts["task"], classes, facts["centre"], facts["spread"], facts.get("link", "identity")
        )
        self.n_features_in_ = facts["features"]
        if facts["feature_names"]:
            self.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
        self.groups_, self.precision_, self.rows_ = facts["groups"], facts["precision"], facts["rows"]
        self.loss_curve_, self.validation_curve_ = facts["losses"], facts["validation"]
        self.n_iter_ = len(self.loss_curve_)
        self.scaling_ = InputScaling(states[_SCALING]["centre"], states[_SCALING]["spread"])
        plan = self._plan(0, {})
        self.models_ = {
            name: plan.model(name, len(group), state=states[name])
            for name, group in zip(plan.models, self.groups_, strict=True)
        }

    def _score(self, X: Any) -> Floats:
        check_is_fitted(self)
        checked = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        objective = objective_for(self._loss, self.code_.class_count)
        return joint_score(self.models_, self._parts(checked), objective)


def _plain_groups(groups: Groups | None) -> list[list[Any]] | dict[str, list[Any]] | None:
    """Groups as JSON has them."""
    if groups is None:
        return None
    if isinstance(groups, Mapping):
        return {str(name): list(group) for name, group in groups.items()}
    return [list(group) for group in groups]
