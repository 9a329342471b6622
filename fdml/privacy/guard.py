"""What a prediction must pass before it leaves."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdml.errors import TrainingDiverged
from fdml.exchange.fixed_point import LARGEST, encode
from fdml.exchange.messages import Release


class Guard(Protocol):
    """The only way from a prediction to a release."""

    def pass_on(self, predictions: NDArray[np.floating[Any]]) -> Release:
        """Predictions `(rows, outputs)` in the form in which they may leave."""
        ...


class OpenGuard:
    """Protects nothing: predictions leave as they are, if they are numbers in range."""

    def pass_on(self, predictions: NDArray[np.floating[Any]]) -> Release:
        """Round to the exchange's grid; raise if training has diverged."""
        largest = np.abs(predictions).max(initial=0.0)
        if not largest <= LARGEST:  # also when it is not a number
            raise TrainingDiverged(
                f"a local prediction is {largest:g}, past the {LARGEST:g} that can be exchanged: training has "
                f"diverged; lower learning_rate, raise echo towards the number of parties, or scale the features"
            )
        return Release(encode(predictions))
