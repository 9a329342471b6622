"""Step sizes over the training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fdml.errors import SettingsError
from fdml.settings import LrDecay, ModelSettings

_AUTO_ADAM = 2e-3
_AUTO_ADAGRAD = 0.05


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


def starting_rate(
    wanted: float | Literal["auto"],
    model: ModelSettings,
    *,
    curvature: float,
    parties: int,
    inputs: int,
    square_norm: float,
) -> float:
    """The step size to begin with.

    "auto" needs nothing from the other parties: at 1 / (curvature * parties * mean
    squared length of a row) the parties' steps are stable together whatever the
    others hold, as each takes at most its own share of the largest safe step. The
    hidden units of an MLP start out about as long as its rows, per unit, and count
    as more inputs. Rows without entries are safe with any step, so 1 stands for their length.
    """
    if wanted == "auto":
        growth = 1.0 + (sum(model.hidden) / max(inputs, 1) if model.kind == "mlp" else 0.0)
        rate = _automatic(model, curvature * parties * growth * (square_norm or 1.0))
    else:
        rate = wanted
    if rate * model.l2 >= 1.0:
        raise SettingsError(f"learning_rate {rate:g} times l2 {model.l2:g} must be below 1; lower one of them")
    return rate


def _automatic(model: ModelSettings, steepness: float) -> float:
    match model.optimizer:
        case "adam":
            return _AUTO_ADAM
        case "adagrad":
            return _AUTO_ADAGRAD
        case "momentum":
            return (1.0 - model.momentum) / steepness
        case _:
            return 1.0 / steepness
