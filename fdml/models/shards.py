"""Shards: a block is cut into parts by position, each is learned from alone, and their changes are put together.

Every part begins with the same parameters. The changes of the parameters are added as whole numbers, so that their sum
has the same bits in any order. The result depends on the number of shards, never on who does the work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import Rows
from fdml.errors import SettingsError, TrainingDiverged
from fdml.models.averaging import AveragedModel
from fdml.models.compiled import CompiledModel
from fdml.models.kernels.optimizers import ADAGRAD
from fdml.models.model import Model, State
from fdml.models.row_pointers import learn_rows, predict_rows
from fdml.models.signals import BlockUpdate, Scores

FRACTION_BITS = 40
_LARGEST = 2.0**22
"""Of a change; so 2**(63 - 40 - 22) shards could be added up at least: twice as many as there may be."""

_HELD = ("first", "second")
"""What an optimizer keeps from earlier updates."""


@dataclass(frozen=True)
class Sharding:
    """How many shards there are, and how many of them may be added up; above that, groups of added ones are averaged.

    Every shard assumes that those of its group, and the other parties, move as it does itself (the echo).
    """

    shards: int
    most_added: int

    @property
    def groups(self) -> int:
        """How many groups are averaged."""
        return math.ceil(self.shards / self.most_added)

    @property
    def echo(self) -> float:
        """By which the echo of a party is multiplied inside a shard: how many shards are added up."""
        return self.shards / self.groups


class ShardUpdate(NamedTuple):
    """One shard's part of a pass over a block."""

    block: BlockUpdate
    scores: Scores
    echo: float
    """Inside the shard; that of `scores` holds for what the party has moved before it."""


class ShardChange(NamedTuple):
    """What one shard would change, as arrays alone."""

    theta: NDArray[np.int64]
    """The change of the parameters, in steps of 2**-40."""
    held: State
    """What the optimizer keeps, as it is after the shard."""
    updates: int
    """Of the optimizer."""


def cut(block: BlockUpdate, scores: Scores, sharding: Sharding) -> list[ShardUpdate]:
    """The parts of a block, by position: a row is always in the same one. A part without rows is left out.

    All parts have the same number of batches, of about the size that they have in the block; their steps add up to
    those of the block.
    """
    size, shards = len(scores.total), sharding.shards
    edges = [size * shard // shards for shard in range(shards + 1)]
    batches = max(1, min(round(len(block.rates) / shards), size // shards))
    spans = np.linspace(0, len(block.rates), batches + 1).round().astype(int)
    rates = np.add.reduceat(block.rates, spans[:-1]) / shards if len(block.rates) else block.rates
    shard_of = np.searchsorted(edges, block.order, side="right") - 1
    return [
        _part(block, scores, sharding, span=(edges[shard], edges[shard + 1]), taken=shard_of == shard, rates=rates)
        for shard in range(shards)
        if edges[shard] < edges[shard + 1]
    ]


def _part(
    block: BlockUpdate,
    scores: Scores,
    sharding: Sharding,
    *,
    span: tuple[int, int],
    taken: NDArray[np.bool_],
    rates: NDArray[np.float64],
) -> ShardUpdate:
    start, stop = span
    order = block.order[taken] - start
    bounds = _batch_bounds(len(order), len(rates))
    rows = slice(start, stop)
    part = scores._replace(
        total=scores.total[rows],
        own_at_push=scores.own_at_push[rows],
        labels=scores.labels[rows],
        weights=scores.weights[rows],
    )
    return ShardUpdate(BlockUpdate(block.start + start, order, bounds, rates), part, scores.echo * sharding.echo)


def _batch_bounds(rows: int, batches: int) -> NDArray[np.int64]:
    """Batches that differ by a row at most; the first is the largest, as kernels take their memory by it."""
    sizes = np.full(batches, rows // max(batches, 1), np.int64)
    sizes[: rows % max(batches, 1)] += 1
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def learn_shard(model: CompiledModel, rows: Rows, state: State, update: ShardUpdate) -> ShardChange:
    """What a shard changes, where the model begins with this state. The same arguments give the same bits."""
    model.restore(state)
    before = model.parameters.astype(np.float64)
    learn_rows(model, rows, update.block, _from_now(model, rows, update))
    after = model.state()
    codes = _encode(model.parameters.astype(np.float64) - before)
    updates = int(after["counters"][1] - state["counters"][1])
    return ShardChange(codes, {name: after[name] for name in _HELD}, updates)


def _from_now(model: CompiledModel, rows: Rows, update: ShardUpdate) -> Scores:
    """The totals as they are where the shard begins: what the party has moved since its push is of all its shards."""
    scores, start = update.scores, update.block.start
    own = predict_rows(model, rows, start, start + len(scores.total))
    total = scores.total + scores.total.dtype.type(scores.echo) * (own - scores.own_at_push)
    return scores._replace(total=total, own_at_push=own, echo=update.echo)


def merged(model: CompiledModel, changes: Sequence[ShardChange], sharding: Sharding) -> State:
    """The state of a model after all shards of a block have changed it; changes come in the order of shards.

    Parameters are moved by the sum of all changes, over the number of groups. Of what the optimizer keeps, Adagrad's
    sums of squares are added up, moments are averaged; an update of all shards counts once.
    """
    before = model.state()
    total = np.sum([change.theta for change in changes], axis=0, dtype=np.int64)
    theta = model.parameters.astype(np.float64) + np.ldexp(total.astype(np.float64), -FRACTION_BITS) / sharding.groups
    state = {**before, "theta": theta.astype(model.dtype), "gradient": np.zeros_like(before["gradient"])}
    added = model.optimizer == ADAGRAD
    for name in _HELD:
        start = before[name].astype(np.float64)
        moved = sum((change.held[name] - start for change in changes), np.zeros_like(start))
        state[name] = (start + (moved if added else moved / len(changes))).astype(model.dtype)
    state["counters"] = np.array([1.0, before["counters"][1] + changes[0].updates])
    return state


def _encode(change: NDArray[np.float64]) -> NDArray[np.int64]:
    if not np.all(np.abs(change) < _LARGEST):
        raise TrainingDiverged(
            "the parameters of a shard ran away; set fewer model.shards, or a smaller model.learning_rate"
        )
    return np.rint(np.ldexp(change, FRACTION_BITS)).astype(np.int64)


def trained_model(model: Model) -> CompiledModel:
    """The compiled model within one that is trained in shards."""
    current = model.current if isinstance(model, AveragedModel) else model
    if not isinstance(current, CompiledModel):
        raise SettingsError(f"a {type(current).__name__} is trained in one piece; set model.shards = 1")
    return current
