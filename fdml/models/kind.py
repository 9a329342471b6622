"""A kind of model: everything that training, settings and commands need to know of it, in one place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from fdml.data.rows import RowEncoding, Rows
from fdml.models.joint import SUM, JointFunction
from fdml.models.layers import PlainModel
from fdml.models.learning_rate import RateInputs, default_rate
from fdml.models.losses import Floats
from fdml.models.model import Model
from fdml.privacy.dp_sgd import DpSgd
from fdml.settings import ModelSettings
from fdml.settings.choices import OptimizerName

S = TypeVar("S", bound=ModelSettings)


_SCORE_VARIANCE = 5.0
"""Of a party's local predictions before training, at most."""


_PRIOR_ROWS = 27.0
"""What the prior of a model with a vector counts as, in rows."""


def l2_of_rows(rows: int, entries: float) -> float:
    """The penalty of a prior whose weights have variance 1: 1 / rows beside a mean loss, scikit-learn's C = 1.

    Where a row has more than 5 features other than zero the variance is less, so that their sum still has 5: else
    many rare features learn single rows by heart.
    """
    return max(1.0, entries / _SCORE_VARIANCE) / max(rows, 1)


def l2_of_nets(rows: int, _: float) -> float:
    """The penalty of a net, which has weights enough to learn single rows by heart."""
    return 0.15 / math.sqrt(max(rows, 1))


def l2_of_vectors(rows: int) -> float:
    """The penalty of any model whose vector interacts with others': that of a net, and of many rows less.

    From 32,400 rows on it is that of a prior, which counts less the more rows there are.
    """
    return min(l2_of_nets(rows, 0.0), _PRIOR_ROWS / max(rows, 1))


class ModelSpec(NamedTuple):
    """What a model is built for, besides its settings."""

    inputs: int
    """Features of a row."""
    width: int
    """Floats of a local prediction."""
    bias: bool
    """Whether its prediction has a bias."""
    key: tuple[int | str, ...]
    """Its starting parameters depend on this alone."""
    dp_sgd: DpSgd | None = None
    """Clip and noise of its updates; only where the kind can do it."""
    rows: int = 10_000
    """Rows to train on, by which the rules of "auto" go; unknown outside a training."""
    joint: JointFunction = SUM
    """What becomes of the sum of all parties' predictions, and so what the model's outputs mean."""
    passes: int = 10
    """How often the training goes over all rows; unknown outside a training."""


def _all_features(_: ModelSettings, rows: Rows) -> Rows:
    return rows


@dataclass(frozen=True)
class ModelKind(Generic[S]):
    """A registry entry."""

    name: str
    """As in `kind = "..."` of a party.toml."""
    display_name: str
    """As in tables and plots."""
    settings: type[S]
    """The keys of `[model]` that it takes."""
    build: Callable[[S, ModelSpec], Model]
    encoding: RowEncoding = "numeric"
    """The rows it wants from a party's encoder."""
    optimizer: OptimizerName | None = "adam"
    """The update rule where none is set; None of a kind that has none."""
    optimizer_elsewhere: OptimizerName | None = None
    """The same in shards, and where the score is no sum of predictions; None where it is no other."""
    default_l2: Callable[[int, float], float] = l2_of_rows
    """The L2 penalty where none is set, by the number of rows and the mean number of their features that are not 0."""
    default_rate: Callable[[S, RateInputs], float] = default_rate
    """The step size where none is set."""
    stepped_rows: Callable[[S, Rows], Rows] = _all_features
    """Of a party's rows, the features by which its step size and L2 penalty go."""
    supports_dp_sgd: bool = False
    learns_from_all_rows: bool = False
    """Whether all or a part of it learns once in an epoch, from the totals of all its blocks."""
    added_shards: int = 0
    """How many shards' changes are added up at most; 0 of a kind that is trained in one piece."""
    added_with_adam: int = 1
    """The same with Adam, whose steps do not become smaller as others do their part."""
    function_setting: str | None = None
    """The setting that takes a Python function; an estimator given a function for a model builds this kind with it."""
    layers: Callable[[S, ModelSpec, Floats], PlainModel] | None = None
    """Its parameters as plain weights, for other programs; None where there is no such form."""

    @property
    def has_defaults(self) -> bool:
        """Whether it can be built from its name alone."""
        return not any(field.is_required() for field in self.settings.model_fields.values())
