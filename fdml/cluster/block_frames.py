"""A pass over a block as a frame: the state to begin with, rows and their order, and what is to be learned from."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from fdml.cluster.frames import Frame
from fdml.models.model import State
from fdml.models.objective import Objective
from fdml.models.signals import BlockUpdate, Scores


def block_facts(block: BlockUpdate, scores: Scores) -> dict[str, Any]:
    """The facts of a frame that `block_of` reads."""
    return {"start": block.start, "echo": scores.echo}


def block_arrays(state: State, block: BlockUpdate, scores: Scores) -> dict[str, NDArray[Any]]:
    """The arrays of a frame that `block_of` reads; the state is under "state"."""
    return {
        **{f"state/{name}": array for name, array in state.items()},
        "order": block.order,
        "bounds": block.batch_bounds,
        "rates": block.rates,
        "total": scores.total,
        "own": scores.own_at_push,
        "labels": scores.labels,
        "weights": scores.weights,
    }


def block_of(task: Frame, objective: Objective) -> tuple[BlockUpdate, Scores]:
    """The block and what to learn from, of a frame with these facts and arrays."""
    facts, given = task.facts, task.arrays
    block = BlockUpdate(int(facts["start"]), given["order"], given["bounds"], given["rates"])
    return block, Scores(given["total"], given["own"], given["labels"], given["weights"], facts["echo"], objective)
