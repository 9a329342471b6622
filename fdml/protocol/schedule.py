"""Which rows are visited when: blocks, batches and orders from the run's seed.

Every party computes the same schedule for itself. Blocks are fixed runs of
consecutive rows; an epoch visits each block once in a new order, and every pass
over a block re-orders the rows inside it, so memory is read in sequence while
the stream of batches stays random. A block larger than a processor's cache is
re-ordered by short runs of rows, or most of the time would go into fetching them;
neighbours are no more alike than others, as alignment has shuffled all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdml.errors import SettingsError
from fdml.protocol.shuffle import permutation, permutation_of_runs, stream
from fdml.settings import AgreedTraining

_LARGE = 5_000
"""A block of this many rows or more is re-ordered by runs."""
_RUN = 16
"""Rows of a run."""


class Visit(NamedTuple):
    """One step: which block, in which epoch, and its rows `start` to `stop`."""

    epoch: int
    block: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many rows the block has."""
        return self.stop - self.start


@dataclass(frozen=True)
class Schedule:
    """The whole training as numbered steps. Make it with `schedule_of`. What follows from its fields is kept: every
    step asks for it many times."""

    rows: int
    batch_size: int
    batches_per_block: int
    passes: int
    epochs: int
    seed: int
    local_passes: int = 0
    """Passes over all rows before the first step."""
    passes_per_exchange: tuple[int, ...] = ()
    """Passes of each step, where they are not all `passes`; there is then one block."""
    absence: float = 0.0
    """The chance that a step is trained without a drawn party."""

    @cached_property
    def block_rows(self) -> int:
        """Rows of a block; the last block may have fewer."""
        return self.batch_size * self.batches_per_block

    @cached_property
    def blocks(self) -> int:
        """How many blocks, and so how many steps an epoch has."""
        return -(-self.rows // self.block_rows)

    @cached_property
    def steps(self) -> int:
        """How many steps the whole training has."""
        return self.blocks * self.epochs

    @cached_property
    def updates(self) -> int:
        """How many batches the whole training has, every pass counted."""
        if self.passes_per_exchange:
            return (self.local_passes + sum(self.passes_per_exchange)) * self._updates_of(self.rows)
        return self._updates_of(self.rows) * self.epochs

    def passes_at(self, step: int) -> int:
        """How often the block of a step is passed over."""
        return self.passes_per_exchange[step] if self.passes_per_exchange else self.passes

    def visit(self, step: int) -> Visit:
        """What a step visits."""
        return _visit(self.rows, self.block_rows, self.seed, step)

    def absent(self, step: int) -> int | None:
        """The number by which the party is drawn that a step is trained without; None if all take part.

        In the last epoch all do: training ends with what they say together.
        """
        if not self.absence or step >= self.steps - self.blocks:
            return None
        return _absent(self.absence, self.seed, step)

    def last_visit(self, block: int, step: int) -> int:
        """The last step up to this one that visits a block; -1 if none does."""
        epoch, position = divmod(step, self.blocks)
        while epoch >= 0:
            (place,) = np.flatnonzero(_block_order(self.blocks, self.seed, epoch) == block)
            if place <= position:
                return epoch * self.blocks + int(place)
            epoch, position = epoch - 1, self.blocks - 1
        return -1

    def ends_epoch(self, step: int) -> bool:
        """Whether the step is the last of its epoch."""
        return (step + 1) % self.blocks == 0

    def order(self, visit: Visit, pass_number: int) -> NDArray[np.int64]:
        """The order of the block's rows, counted from its start, in pass number `pass_number`."""
        run = _RUN if self.block_rows >= _LARGE else 1
        return permutation_of_runs(visit.size, run, self.seed, "rows", visit.epoch, visit.block, pass_number)

    def batch_bounds(self, visit: Visit) -> NDArray[np.int64]:
        """Where each batch begins and ends in the block's order; the last may be short."""
        return _batch_bounds(visit.size, self.batch_size)

    def epochs_scored(self, step: int, lookahead: int) -> int:
        """The last epoch that the label party has scored when it learns from this step; below 1 for none.

        The total of an epoch's held-out predictions is on its way together with that of the last push before them,
        which is learned from at the first such step: so nobody waits longer for it.
        """
        return (step - lookahead) // self.blocks

    def first_update(self, step: int) -> int:
        """How many batches come before this step, every pass counted."""
        if self.passes_per_exchange:
            return (self.local_passes + sum(self.passes_per_exchange[:step])) * self._updates_of(self.rows)
        epoch, position = divmod(step, self.blocks)
        full = self.passes * self.batches_per_block
        short = full - self._updates_of(self.rows - (self.blocks - 1) * self.block_rows)
        within = position * full - (short if _place_of_last(self.blocks, self.seed, epoch) < position else 0)
        return epoch * self._updates_of(self.rows) + within

    def _updates_of(self, rows: int) -> int:
        return self.passes * -(-rows // self.batch_size)


def schedule_for(
    rows: int, batch_size: int, batches_per_block: int | Literal["all"], passes: int, epochs: int, seed: int
) -> Schedule:
    """A schedule over `rows` rows; "all" batches make one block of them."""
    if rows < 1:
        raise SettingsError("there are no rows to train on; check the files and what the parties share")
    every = -(-rows // batch_size)
    per_block = every if batches_per_block == "all" else min(batches_per_block, every)
    return Schedule(rows, batch_size, per_block, passes, epochs, seed)


def schedule_of(rows: int, training: AgreedTraining) -> Schedule:
    """The schedule that a run's settings mean."""
    if training.exchanges is None:
        plain = schedule_for(
            rows, training.batch_size, training.batches_per_block, training.passes, training.epochs, training.seed
        )
        return replace(plain, absence=training.absence)
    exchanges = training.exchanges
    alone, *passes_per_exchange = (
        training.epochs * (number + 1) // (exchanges + 1) - training.epochs * number // (exchanges + 1)
        for number in range(exchanges + 1)
    )
    plain = schedule_for(rows, training.batch_size, "all", 1, exchanges, training.seed)
    return replace(plain, local_passes=alone, passes_per_exchange=tuple(passes_per_exchange))


@lru_cache(maxsize=1024)
def _visit(rows: int, block_rows: int, seed: int, step: int) -> Visit:
    blocks = -(-rows // block_rows)
    epoch, position = divmod(step, blocks)
    block = int(_block_order(blocks, seed, epoch)[position])
    start = block * block_rows
    return Visit(epoch, block, start, min(start + block_rows, rows))


@lru_cache(maxsize=4096)
def _absent(chance: float, seed: int, step: int) -> int | None:
    return None if stream(seed, "absence", step) >= chance * 2**64 else stream(seed, "absent party", step)


@lru_cache(maxsize=8)
def _block_order(blocks: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return permutation(blocks, seed, "blocks", epoch)


@lru_cache(maxsize=8)
def _place_of_last(blocks: int, seed: int, epoch: int) -> int:
    """Where in an epoch the last block comes, which may be short."""
    return int(np.flatnonzero(_block_order(blocks, seed, epoch) == blocks - 1)[0])


@lru_cache(maxsize=8)
def _batch_bounds(size: int, batch_size: int) -> NDArray[np.int64]:
    return np.minimum(np.arange(0, size + batch_size, batch_size), size)
