"""A learner whose blocks are learned from in shards, by workers."""

from __future__ import annotations

from fdml.cluster.shard_frames import change_of, task_of
from fdml.cluster.workers import Workers
from fdml.data.rows import Rows
from fdml.events import Event, Remark
from fdml.models.averaging import AveragedModel
from fdml.models.learner import LocalLearner
from fdml.models.model import Model
from fdml.models.objective import Objective
from fdml.models.shards import Sharding, ShardUpdate, cut, merged, trained_model
from fdml.models.signals import NO_ROWS, BlockUpdate, Signal, no_scores

_AVERAGED = (
    "{0.shards} shards are more than can be added up without running away, so {0.groups} groups of them are averaged: "
    "training needs more epochs than with model.shards = {0.most_added}"
)


class ShardedLearner(LocalLearner):
    """A model whose blocks are cut into shards; predictions are made in this process, as of any other.

    The model here is the only one that lasts: workers get its state with every task, and give back changes.
    """

    def __init__(
        self,
        model: Model,
        rows: Rows,
        sharding: Sharding,
        workers: Workers,
        *,
        party: str,
        held_out: Rows | None = None,
        threads: int = 1,
    ) -> None:
        super().__init__(model, rows, held_out=held_out, threads=threads)
        self._average = model if isinstance(model, AveragedModel) else None
        self._trained = trained_model(model)
        self._sharding = sharding
        self._workers = workers
        self._party = party
        self._remarks = [] if 1 in (sharding.groups, sharding.most_added) else [_AVERAGED.format(sharding)]

    def update(self, block: BlockUpdate, signal: Signal) -> None:
        """Learn from one pass over one block: all shards of a round at once, from the parameters as they are."""
        for parts in cut(block, signal.scores, self._sharding, len(self._trained.parameters)):
            state = self._trained.state()
            changes = [change_of(result) for result in self._workers.map([task_of(state, part) for part in parts])]
            self._trained.restore(merged(self._trained, changes, self._sharding))
        if self._average is not None:
            self._average.average_in(len(block.rates))

    def events(self) -> list[Event]:
        """What there is to tell of the workers since the last call."""
        said, self._remarks = [*self._remarks, *self._workers.remarks()], []
        return [Remark(self._party, text) for text in said]

    def warm_up(self, objective: Objective) -> None:
        """Have kernels compiled or loaded here and at the workers; the model does not change."""
        super().warm_up(objective)
        nothing = ShardUpdate(NO_ROWS, no_scores(objective, self.dtype), 1.0)
        self._workers.map([task_of(self._trained.state(), nothing)] * self._sharding.shards)

    def close(self) -> None:
        """End the workers."""
        self._workers.close()
