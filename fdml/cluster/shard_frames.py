"""Shards of a block as frames: what a worker is asked with, and what it answers."""

from __future__ import annotations

from fdml.cluster.frames import Frame
from fdml.models.model import State
from fdml.models.objective import Objective
from fdml.models.shards import ShardChange, ShardUpdate
from fdml.models.signals import BlockUpdate, Scores


def task_of(state: State, update: ShardUpdate) -> Frame:
    """A shard to learn from, beginning with this state of the model."""
    block, scores = update.block, update.scores
    arrays = {
        **{f"state/{name}": array for name, array in state.items()},
        "order": block.order,
        "bounds": block.batch_bounds,
        "rates": block.rates,
        "total": scores.total,
        "own": scores.own_at_push,
        "labels": scores.labels,
        "weights": scores.weights,
    }
    return Frame({"start": block.start, "echo": scores.echo, "shard echo": update.echo}, arrays)


def update_of(task: Frame, objective: Objective) -> tuple[State, ShardUpdate]:
    """What `task_of` was given."""
    facts, given = task.facts, task.arrays
    block = BlockUpdate(int(facts["start"]), given["order"], given["bounds"], given["rates"])
    scores = Scores(given["total"], given["own"], given["labels"], given["weights"], facts["echo"], objective)
    return task.under("state"), ShardUpdate(block, scores, facts["shard echo"])


def result_of(change: ShardChange) -> Frame:
    """What a shard changes."""
    held = {f"held/{name}": array for name, array in change.held.items()}
    return Frame({"updates": change.updates}, {"theta": change.theta, **held})


def change_of(result: Frame) -> ShardChange:
    """What `result_of` was given."""
    return ShardChange(result.arrays["theta"], result.under("held"), int(result.facts["updates"]))
