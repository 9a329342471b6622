"""An average of a model's weights over its updates: what is evaluated and kept, while the weights themselves train on.

The average after block t is a_t = d^b a_t-1 + (1 - d^b) w_t, where the block had b batches and left the weights w_t,
divided by what the factors of all w add up to: so the weights before the first update have no part in it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Protocol, Self

import numpy as np

from fdml.data.rows import Rows
from fdml.models.losses import Floats
from fdml.models.model import PROGRESS, CheckedModel, State
from fdml.models.signals import BlockUpdate, Scores
from fdml.models.states import check_shapes

_CURRENT, _SUM = f"{PROGRESS}current/", f"{PROGRESS}average"


class WeightedModel(CheckedModel, Protocol):
    """A model whose parameters can be averaged."""

    def move_towards(self, other: Self, share: float) -> None:
        """Let the parameters be `1 - share` of what they are and `share` of another's."""
        ...


class AveragedModel:
    """A model that predicts by the exponential moving average of its weights.

    Its state is that of a model at the average, which can be taken by itself; what training needs is marked as
    progress. A state without that lets training begin at the average.
    """

    def __init__(self, model: WeightedModel, left: float) -> None:
        """`left` is what stays of the average after a batch."""
        self.current = model
        """The model as it is trained."""
        self._average = deepcopy(model)
        self._left = left
        self._sum = 0.0
        """Of the factors of all weights so far."""

    @property
    def concurrent(self) -> bool:
        """Whether several threads may predict with it at once, and gain by it."""
        return self.current.concurrent

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return self.current.dtype

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """The outputs of the rows from `start` to `stop`, by the average."""
        return self._average.predict(rows, start, stop)

    def learn(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block, whose weights at its end are then averaged."""
        self.current.learn(rows, block, scores)
        self.average_in(len(block.rates))

    def average_in(self, batches: int) -> None:
        """Let the weights as they are now, after so many batches, have their part in the average."""
        if not batches:
            return
        kept = self._left**batches
        self._sum = kept * self._sum + (1.0 - kept)
        self._average.move_towards(self.current, (1.0 - kept) / self._sum)

    def penalty(self) -> float:
        """This party's part of the regulariser, of the weights that are trained."""
        return self.current.penalty()

    def state(self) -> State:
        """The average, and as progress the model as it is trained."""
        current = {f"{_CURRENT}{name}": array for name, array in self.current.state().items()}
        return {**self._average.state(), **current, _SUM: np.array(self._sum)}

    def check(self, state: State, under: str = "") -> None:
        """Raise unless the state is of such a model, or of one at an average."""
        average, current = _parted(state)
        self._average.check(average, under)
        if current is not average:
            self.current.check(current, f"{under}{_CURRENT}")
            check_shapes(state, {_SUM: ()}, under)

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        self.check(state)
        average, current = _parted(state)
        self._average.restore(average)
        self.current.restore(current)
        self._sum = float(state[_SUM]) if _SUM in state else 0.0


def _parted(state: State) -> tuple[State, State]:
    """Of a state, the average and the model as it is trained; the same where only the average was kept."""
    average = {name: array for name, array in state.items() if not name.startswith((_CURRENT, _SUM))}
    current = {name.removeprefix(_CURRENT): array for name, array in state.items() if name.startswith(_CURRENT)}
    return average, current or average
