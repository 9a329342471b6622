"""A learner in column groups: workers predict and learn with the columns of one group each, this process adds."""

from __future__ import annotations

from fdml.cluster.column_job import HELD_OUT, TRAIN, learning, predicting, predictions_of
from fdml.cluster.workers import Workers
from fdml.data.rows import Rows, row_count
from fdml.errors import DataError
from fdml.events import Event, Remark
from fdml.models.averaging import AveragedModel
from fdml.models.column_groups import added, group_scores, grouped_model, joined_states, state_of
from fdml.models.learner import LocalLearner
from fdml.models.losses import Floats
from fdml.models.model import Model, State, current_model
from fdml.models.objective import Objective
from fdml.models.signals import NO_ROWS, BlockUpdate, Signal, no_scores


class GroupedLearner(LocalLearner):
    """A model in column groups. The model here is the only one that lasts: workers get a group's state with each task.

    Rows are here for their number alone: those of a group are read by whoever works for it.
    """

    def __init__(self, model: Model, rows: Rows, workers: Workers, *, party: str, held_out: Rows | None = None) -> None:
        super().__init__(model, rows, held_out=held_out)
        self._average = model if isinstance(model, AveragedModel) else None
        self._trained = grouped_model(model)
        self._groups = range(len(self._trained.models))
        self._workers = workers
        self._party = party
        self._is_closed = False

    def predict(self, start: int, stop: int) -> Floats:
        """Local predictions of the training rows from `start` to `stop`: the sum of all groups'."""
        if self._is_closed:
            return super().predict(start, stop)
        return added(self._predictions(current_model(self._model).state(), TRAIN, start, stop))

    def predict_held_out(self) -> Floats:
        """Local predictions of the held-out rows."""
        if self._held_out is None:
            raise DataError("this party has no held-out rows; raise evaluation.holdout")
        if self._is_closed:
            return super().predict_held_out()
        return added(self._predictions(self._model.state(), HELD_OUT, 0, row_count(self._held_out)))

    def update(self, block: BlockUpdate, signal: Signal) -> None:
        """Learn from one pass over one block: all groups at the same time, from the same totals."""
        state, scores = self._trained.state(), signal.scores
        own = self._predictions(state, TRAIN, block.start, block.start + len(scores.total))
        given = group_scores(scores, own)
        tasks = [learning(group, state_of(state, group), block, given[group]) for group in self._groups]
        self._trained.restore(joined_states([result.arrays for result in self._workers.map(tasks)]))
        if self._average is not None:
            self._average.average_in(len(block.rates))

    def _predictions(self, state: State, part: str, start: int, stop: int) -> list[Floats]:
        """Of each group; beside those of a model at an average stands its progress, which no group has."""
        tasks = [predicting(group, state_of(state, group), part, start, stop) for group in self._groups]
        return [predictions_of(result) for result in self._workers.map(tasks)]

    def events(self) -> list[Event]:
        """What there is to tell of the workers since the last call."""
        return [Remark(self._party, text) for text in self._workers.remarks()]

    def warm_up(self, objective: Objective) -> None:
        """Have kernels compiled or loaded at the workers; the model does not change."""
        state, nothing = self._trained.state(), no_scores(objective, self.dtype)
        self._workers.map([learning(group, state_of(state, group), NO_ROWS, nothing) for group in self._groups])
        self._predictions(state, TRAIN, 0, 0)
        if self._held_out is not None:
            self._predictions(state, HELD_OUT, 0, 0)

    def close(self) -> None:
        """End the workers; what is still predicted is predicted here."""
        self._is_closed = True
        self._workers.close()
