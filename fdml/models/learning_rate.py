"""Step sizes over the training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fdml.errors import SettingsError
from fdml.settings import ModelSettings
from fdml.settings.choices import LrDecay

_DEFAULT_ADAM = 2e-3
_DEFAULT_ADAGRAD = 0.05
S = TypeVar("S", bound=ModelSettings)


@dataclass(frozen=True)
class LearningRate:
    """The step size of every batch of the training, counted from 0 through all epochs and passes."""

    start: float
    decay: LrDecay
    updates: int

    def of(self, first: int, count: int) -> NDArray[np.float64]:
        """The step sizes of `count` batches from number `first` on."""
        number = np.arange(first, first + count, dtype=np.float64)
        match self.decay:
            case "linear":
                return self.start * (1.0 - number / self.updates)
            case "sqrt":
                return self.start / np.sqrt(number + 1.0)
            case "constant":
                return np.full(count, self.start)


class RateInputs(NamedTuple):
    """What a default step size may depend on."""

    curvature: float
    """Of the objective."""
    parties: int
    inputs: int
    """Features of a row."""
    square_norm: float
    """The mean squared length of the party's rows."""
    vectors: bool = False
    """Whether parties' vectors interact: products of parameters are no longer convex, whatever the kind."""


def default_rate(
    settings: ModelSettings, given: RateInputs, *, growth: float = 1.0, adam: float = _DEFAULT_ADAM
) -> float:
    """The step size of a model whose gradient is about `growth` times as long as its rows.

    It needs nothing from the other parties: at 1 / (curvature * parties * mean
    squared length of a row) the parties' steps are stable together whatever the
    others hold, as each takes at most its own share of the largest safe step.
    Rows without entries are safe with any step, so 1 is taken for their length.
    """
    steepness = given.curvature * given.parties * growth * (given.square_norm or 1.0)
    match settings.update_rule:
        case "adam" | "factored":
            return adam
        case "adagrad":
            return _DEFAULT_ADAGRAD
        case "momentum":
            return (1.0 - settings.momentum) / steepness
        case "sgd":
            return 1.0 / steepness


def starting_rate(
    wanted: float | Literal["auto"], settings: S, given: RateInputs, default: Callable[[S, RateInputs], float]
) -> float:
    """The step size to begin with; "auto" takes the default of the model's kind."""
    rate = default(settings, given) if wanted == "auto" else wanted
    l2 = settings.weight_decay
    if rate * l2 >= 1.0:
        raise SettingsError(f"learning_rate {rate:g} times l2 {l2:g} must be below 1; lower one of them")
    return rate
