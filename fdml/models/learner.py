"""A model with its rows bound: what a party's training loop knows of models and of where rows are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from fdml.data.rows import Rows, row_count
from fdml.errors import DataError
from fdml.events import Event
from fdml.models.losses import Floats
from fdml.models.model import Model, State, current_model
from fdml.models.objective import Objective
from fdml.models.row_pointers import learn_rows, predict_rows
from fdml.models.signals import NO_ROWS, BlockUpdate, Signal, no_scores

_FEWEST = 4096
"""Rows for which another thread is worth its start."""


class Learner(Protocol):
    """A party's local model over the rows it trains on and those it holds out."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        ...

    def predict(self, start: int, stop: int) -> Floats:
        """Local predictions of the training rows from `start` to `stop`, `(rows, width)`."""
        ...

    def update(self, block: BlockUpdate, signal: Signal) -> None:
        """Learn from one pass over one block."""
        ...

    def predict_held_out(self) -> Floats:
        """Local predictions of the held-out rows; raises if there are none."""
        ...

    def penalty(self) -> float:
        """This party's part of the regulariser."""
        ...

    def events(self) -> list[Event]:
        """What there is to tell of whoever works for it since the last call."""
        ...

    def close(self) -> None:
        """End whoever works for it; it can still predict."""
        ...

    def state(self) -> State:
        """The model's parameters and all else it needs to go on, as arrays that share no memory with it."""
        ...

    def restore(self, state: State) -> None:
        """Become the learner that gave this state."""
        ...


class LocalLearner:
    """A model and its rows in this process; `threads` predict together, and their number changes no prediction.

    Of a model that averages its weights, training rows are predicted by the weights, held-out rows by the average.
    """

    def __init__(self, model: Model, rows: Rows, *, held_out: Rows | None = None, threads: int = 1) -> None:
        self._model = model
        self._current = current_model(model)
        self._rows = rows
        self._held_out = held_out
        self._threads = threads if model.concurrent else 1
        self._pool = ThreadPoolExecutor(self._threads - 1, "predict") if self._threads > 1 else None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return self._model.dtype

    def predict(self, start: int, stop: int) -> Floats:
        """Local predictions of the training rows from `start` to `stop`, `(rows, width)`."""
        parts = min(self._threads, (stop - start) // _FEWEST)
        if self._pool is None or parts < 2:
            return predict_rows(self._current, self._rows, start, stop)
        edges = np.linspace(start, stop, parts + 1).astype(int).tolist()
        others = [self._pool.submit(predict_rows, self._current, self._rows, *part) for part in pairwise(edges[1:])]
        mine = predict_rows(self._current, self._rows, edges[0], edges[1])
        return np.concatenate([mine, *(other.result() for other in others)])

    def update(self, block: BlockUpdate, signal: Signal) -> None:
        """Learn from one pass over one block."""
        learn_rows(self._model, self._rows, block, signal.scores)

    def predict_held_out(self) -> Floats:
        """Local predictions of the held-out rows."""
        if self._held_out is None:
            raise DataError("this party has no held-out rows; raise evaluation.holdout")
        return predict_rows(self._model, self._held_out, 0, row_count(self._held_out))

    def penalty(self) -> float:
        """This party's part of the regulariser."""
        return self._model.penalty()

    def events(self) -> list[Event]:
        """Nothing: it works in this process."""
        return []

    def close(self) -> None:
        """Nothing has to be ended."""

    def state(self) -> State:
        """The model's parameters and all else it needs to go on, as arrays that share no memory with it."""
        return self._model.state()

    def restore(self, state: State) -> None:
        """Become the learner that gave this state."""
        self._model.restore(state)

    def warm_up(self, objective: Objective) -> None:
        """Have kernels compiled or loaded before anyone waits for them; the model does not change."""
        learn_rows(self._model, self._rows, NO_ROWS, no_scores(objective, self._model.dtype))
        predict_rows(self._model, self._rows, 0, 0)
        if self._held_out is not None:
            predict_rows(self._model, self._held_out, 0, 0)
