"""Shards of a block as frames: what a worker is asked with, and what it answers."""

from __future__ import annotations

from fdml.cluster.block_frames import block_arrays, block_facts, block_of
from fdml.cluster.frames import Frame
from fdml.models.model import State
from fdml.models.objective import Objective
from fdml.models.shards import ShardChange, ShardUpdate


def task_of(state: State, update: ShardUpdate) -> Frame:
    """A shard to learn from, beginning with this state of the model."""
    block, scores = update.block, update.scores
    facts = {**block_facts(block, scores), "shard echo": update.echo}
    return Frame(facts, block_arrays(state, block, scores))


def update_of(task: Frame, objective: Objective) -> tuple[State, ShardUpdate]:
    """What `task_of` was given."""
    block, scores = block_of(task, objective)
    return task.under("state"), ShardUpdate(block, scores, task.facts["shard echo"])


def result_of(change: ShardChange) -> Frame:
    """What a shard changes."""
    held = {f"held/{name}": array for name, array in change.held.items()}
    return Frame({"updates": change.updates}, {"theta": change.theta, **held})


def change_of(result: Frame) -> ShardChange:
    """What `result_of` was given."""
    return ShardChange(result.arrays["theta"], result.under("held"), int(result.facts["updates"]))
