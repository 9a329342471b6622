"""Shards: a block is cut into parts by position, each is learned from alone, and their changes are put together.

Every part begins with the same parameters. The changes of the parameters are added as whole numbers, so that their sum
has the same bits in any order. The result depends on the number of shards, never on who does the work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import Rows
from fdml.errors import SettingsError, TrainingDiverged
from fdml.models.averaging import AveragedModel
from fdml.models.compiled import CompiledModel
from fdml.models.kernels.optimizers import ADAGRAD, ADAM, ADAM_BETA2, FACTORED
from fdml.models.losses import Floats
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
    step: float = 1.0
    """By which step sizes are multiplied."""
    round_batches: int = 0
    """Batches of a block after which changes are put together at the latest; 0: once a block."""

    @property
    def groups(self) -> int:
        """How many groups are averaged."""
        return math.ceil(self.shards / self.most_added)

    @property
    def echo(self) -> float:
        """By which the echo of a party is multiplied inside a shard: how many shards are added up."""
        return self.shards / self.groups

    def rounds(self, batches: int, rows: int, parameters: int) -> int:
        """How often a block's changes are put together: a round has as many rows as parameters, or is the only one.

        So what travels for a round stays small beside the work.
        """
        wanted = -(-batches // self.round_batches) if self.round_batches else 1
        return max(1, min(wanted, rows // max(parameters, 1)))


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


def cut(block: BlockUpdate, scores: Scores, sharding: Sharding, parameters: int = 0) -> list[list[ShardUpdate]]:
    """The rounds of a block, each in its shards, by position: a row is always in the same one. Empty ones are left out.

    All shards of a round have the same number of batches, of about the size that they have in the block; their steps
    add up to those of the block, times `sharding.step`. `parameters` are those of the model.
    """
    size, shards = len(scores.total), sharding.shards
    rounds = sharding.rounds(len(block.rates), size, parameters)
    ends = [size * number // rounds for number in range(rounds + 1)]
    edges = [start + (stop - start) * shard // shards for start, stop in pairwise(ends) for shard in range(shards)]
    part_of = np.searchsorted([*edges, size], block.order, side="right") - 1
    orders = np.split(block.order[np.argsort(part_of, kind="stable")], edges[1:])
    found = []
    for number, (start, stop) in enumerate(pairwise(ends)):
        taken = slice(len(block.rates) * number // rounds, len(block.rates) * (number + 1) // rounds)
        rates = _rates(block.rates[taken], sharding, (stop - start) // shards)
        parts = range(number * shards, (number + 1) * shards)
        found.append([_part(block, scores, sharding, orders[at], edges[at], rates) for at in parts if len(orders[at])])
    return found


def _rates(rates: NDArray[np.float64], sharding: Sharding, rows: int) -> NDArray[np.float64]:
    """The steps of each shard of a round, for so many batches of its `rows` as come to it."""
    if not len(rates):
        return rates
    batches = max(1, min(round(len(rates) / sharding.shards), rows))
    spans = np.linspace(0, len(rates), batches + 1).round().astype(int)
    return np.add.reduceat(rates, spans[:-1]) / sharding.shards * sharding.step


def _part(
    block: BlockUpdate,
    scores: Scores,
    sharding: Sharding,
    order: NDArray[np.int64],
    start: int,
    rates: NDArray[np.float64],
) -> ShardUpdate:
    rows = slice(start, start + len(order))
    part = scores._replace(
        total=scores.total[rows],
        own_at_push=scores.own_at_push[rows],
        labels=scores.labels[rows],
        weights=scores.weights[rows],
    )
    bounds = _batch_bounds(len(order), len(rates))
    return ShardUpdate(
        BlockUpdate(block.start + start, order - start, bounds, rates), part, scores.echo * sharding.echo
    )


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
    """The state of a model after all shards of a round have changed it; changes come in the order of shards.

    Parameters are moved by the sum of all changes, over the number of groups. Of what the optimizer keeps, Adagrad's
    sums of squares are added up, moments are averaged. Adam's second moment then forgets as much as by the updates of
    all shards one after the other, and these are counted; else an update of all shards counts once.
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
    updates = changes[0].updates
    if model.optimizer in (ADAM, FACTORED) and updates:
        each, updates = updates, updates * len(changes)
        state["second"] = _forgotten(before["second"], state["second"], each, updates)
    state["counters"] = np.array([1.0, before["counters"][1] + updates])
    return state


def _forgotten(before: Floats, after: Floats, each: int, updates: int) -> Floats:
    """Adam's second moment as if what it took in by `each` updates had come by `updates`."""
    left, left_by_all = ADAM_BETA2**each, ADAM_BETA2**updates
    taken = np.maximum(after.astype(np.float64) - left * before, 0.0)
    found: Floats = (left_by_all * before + taken * ((1.0 - left_by_all) / (1.0 - left))).astype(after.dtype)
    return found


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
