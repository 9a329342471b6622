"""A learner for models that learn from all rows at once: it collects the totals of blocks until it has them all."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import PointedRows, Rows, row_count
from fdml.errors import DataError
from fdml.models.learner import PROGRESS, LocalLearner
from fdml.models.losses import Floats
from fdml.models.model import Model, State
from fdml.models.objective import Objective
from fdml.models.signals import BlockUpdate, Scores, Signal

_COLLECTED = f"{PROGRESS}collected/"


class BindingModel(Model, Protocol):
    """A model that learns from all rows at once, and predicts rows that point to stored ones by itself."""

    def bind(self, *rows: Rows) -> None:
        """Remember the predictions of these rows from now on, as they are asked for again and again."""
        ...


class CollectingLearner(LocalLearner):
    """A model and its rows in this process. It learns with the last block of an epoch, from the totals of all blocks.

    A block that is passed over again at once, with the same signal, lets the model learn again once all are there.
    What is collected is part of the state: three floats for each row and output, and nothing where a block has all
    rows.
    """

    def __init__(self, model: BindingModel, rows: Rows, *, held_out: Rows | None = None) -> None:
        super().__init__(model, rows, held_out=held_out)
        model.bind(*(each for each in (rows, held_out) if each is not None))
        self._count = row_count(rows)
        self._collected: dict[str, NDArray[Any]] = {}
        """Of all rows: `offset` is the total but for the echo of this party's own part, NaN where none came yet."""
        self._rates: list[float] = []
        self._last: Signal | None = None

    def predict(self, start: int, stop: int) -> Floats:
        """Local predictions of the training rows from `start` to `stop`, `(rows, width)`."""
        return self._model.predict(self._rows, start, stop)

    def predict_held_out(self) -> Floats:
        """Local predictions of the held-out rows."""
        if self._held_out is None:
            return super().predict_held_out()
        return self._model.predict(self._held_out)

    def update(self, block: BlockUpdate, signal: Signal) -> None:
        """Keep what is known of the block's totals; learn once all blocks are there."""
        if signal is not self._last:
            self._collect(block, signal.scores)
            self._last = signal
        if self._collected and not np.isnan(self._collected["offset"]).any():
            self._learn(signal.scores)

    def _collect(self, block: BlockUpdate, scores: Scores) -> None:
        known = self._collected
        if not known or not np.isnan(known["offset"]).any():  # the epoch before is done
            known = {
                "offset": np.full((self._count, scores.total.shape[1]), np.nan),
                "labels": np.zeros(self._count),
                "weights": np.zeros(self._count),
            }
            self._rates = []
        rows = slice(block.start, block.start + len(scores.total))
        known["offset"][rows] = scores.total.astype(np.float64) - scores.echo * scores.own_at_push.astype(np.float64)
        known["labels"][rows], known["weights"][rows] = scores.labels, scores.weights
        self._rates.append(float(block.rates.mean()) * len(scores.total))
        self._collected = known

    def _learn(self, scores: Scores) -> None:
        known = self._collected
        weights = known["weights"]
        if isinstance(self._rows, PointedRows):
            weights = np.where(self._rows.pointers < 0, 0.0, weights)
        whole = BlockUpdate(
            0, np.arange(self._count), np.array([0, self._count]), np.array([sum(self._rates) / self._count])
        )
        nothing = np.zeros_like(known["offset"])
        self._model.learn(
            self._rows, whole, Scores(known["offset"], nothing, known["labels"], weights, scores.echo, scores.objective)
        )

    def state(self) -> State:
        """The model's state, and what was collected where an epoch is under way."""
        if not self._collected or not np.isnan(self._collected["offset"]).any():
            return super().state()
        collected = {f"{_COLLECTED}{name}": array.copy() for name, array in self._collected.items()}
        return {**super().state(), **collected, f"{_COLLECTED}rates": np.array(self._rates)}

    def restore(self, state: State) -> None:
        """Become the learner that gave this state."""
        collected = {key.removeprefix(_COLLECTED): each for key, each in state.items() if key.startswith(_COLLECTED)}
        if collected and len(collected["offset"]) != self._count:
            raise DataError(f"saved totals are of {len(collected['offset'])} rows, this party has {self._count}")
        super().restore({key: each for key, each in state.items() if not key.startswith(_COLLECTED)})
        self._rates = collected.pop("rates", np.zeros(0)).tolist()
        self._collected = {name: array.copy() for name, array in collected.items()}
        self._last = None

    def warm_up(self, objective: Objective) -> None:
        """Nothing: there are no kernels to compile."""
