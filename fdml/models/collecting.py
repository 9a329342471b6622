"""A learner for models that learn once in an epoch: it collects the totals of blocks until it has them all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import PointedRows, Rows, row_count
from fdml.errors import DataError
from fdml.models.learner import LocalLearner
from fdml.models.losses import Floats
from fdml.models.model import PROGRESS, EpochModel, State
from fdml.models.objective import Objective
from fdml.models.signals import NO_ROWS, BlockUpdate, Scores, Signal, no_scores

_COLLECTED = f"{PROGRESS}collected/"


class CollectingLearner(LocalLearner):
    """A model and its rows in this process. It learns with the last block of an epoch, from the totals of all blocks.

    What of the model learns from blocks does so before. A block that is passed over again at once, with the same
    signal, lets the model learn again once all are there. What is collected is part of the state: of each row the
    total, under a joint function that is no sum also this party's part of it, label and weight; nothing where a block
    has all rows.
    """

    def __init__(self, model: EpochModel, rows: Rows, *, held_out: Rows | None = None) -> None:
        super().__init__(model, rows, held_out=held_out)
        self._epoch_model = model
        model.bind(*(each for each in (rows, held_out) if each is not None))
        self._count = row_count(rows)
        self._collected: dict[str, NDArray[Any]] = {}
        """Of all rows: `offset` is the total, NaN where none came yet. Of a sum the echo of this party's own part is
        taken off it; else that part is in `own`."""
        self._rates: list[float] = []
        self._last: Signal | None = None

    def predict(self, start: int, stop: int) -> Floats:
        """Local predictions of the training rows from `start` to `stop`, `(rows, width)`."""
        return self._current.predict(self._rows, start, stop)

    def predict_held_out(self) -> Floats:
        """Local predictions of the held-out rows."""
        if self._held_out is None:
            return super().predict_held_out()
        return self._model.predict(self._held_out)

    def update(self, block: BlockUpdate, signal: Signal) -> None:
        """Learn from the block; keep what is known of its totals, and learn from all blocks once they are there."""
        self._epoch_model.learn_block(self._rows, block, signal.scores)
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
            if not scores.objective.joint.is_identity:
                known["own"] = np.zeros_like(known["offset"])
            self._rates = []
        rows = slice(block.start, block.start + len(scores.total))
        known["offset"][rows] = scores.total
        if "own" in known:
            known["own"][rows] = scores.own_at_push
        else:
            known["offset"][rows] -= scores.echo * scores.own_at_push.astype(np.float64)
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
        own = known.get("own", np.zeros_like(known["offset"]))
        self._epoch_model.learn_epoch(
            self._rows, whole, Scores(known["offset"], own, known["labels"], weights, scores.echo, scores.objective)
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
        """Have kernels compiled or loaded, where the model has some; the model does not change."""
        self._epoch_model.learn_block(self._rows, NO_ROWS, no_scores(objective, self._model.dtype))
        self.predict(0, 0)
