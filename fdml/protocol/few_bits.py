"""Predictions as differences of few bits to what was sent of them before, where `value_bits` is below 16.

What the server has of a party's block is a sum of all that the party sent of it: the first time whole, in 16 bits,
then by how much it has changed, in whole steps of 2**scale of the 16-bit grid. A party takes each difference to that
sum, not to its last prediction, so what one rounding leaves out is in the next difference (error feedback). All stay
whole numbers, so sums are exact and independent of their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from fdml.errors import SettingsError
from fdml.protocol.bit_packing import MOST_BITS
from fdml.protocol.fixed_point import FIXED_POINTS, Codes
from fdml.protocol.schedule import Schedule
from fdml.settings import RunSettings

GRID = FIXED_POINTS[16]
"""Of first pushes, of what differences add up to, and of held-out predictions."""
_STEP_SQUARED = {8: 1 / 64, 4: 1 / 2, 2: 4.0}
"""By bits: the square of the smallest step, in mean squares of the differences.

Differences have long tails: to cut the largest, so that they come a visit later, costs more than coarse steps do.
"""
_FIRST = np.array([2**GRID.fraction_bits])
"""What a total is taken to move by where nothing is known yet: 1.0."""


@dataclass(frozen=True)
class FewBits:
    """How the predictions of a run travel."""

    bits: int
    """Of a difference."""
    parties: int
    in_step: bool = True
    """Whether totals travel as differences, too: all parties then have the same totals, and find from them the one
    scale that all use. Else each party chooses its own, and totals travel whole."""
    blind: bool = False

    def is_whole(self, schedule: Schedule, step: int) -> bool:
        """Whether a step's predictions travel whole: the first of a block, and where a party leaves or comes back.

        Few bits do not hold the difference between a prediction and none.
        """
        visit = schedule.visit(step)
        if visit.epoch == 0 or not schedule.absence:
            return visit.epoch == 0
        before = schedule.last_visit(visit.block, step - 1)
        return schedule.absent(step) is not None or schedule.absent(before) is not None

    def total_bits(self, schedule: Schedule, step: int) -> int:
        """Bits of a number of a step's total; 0 where it travels whole."""
        return self.ring_bits if self.in_step and not self.is_whole(schedule, step) else 0

    @property
    def limit(self) -> int:
        """The largest code of a difference."""
        return (1 << (self.bits - 1)) - 1

    @property
    def ring_bits(self) -> int:
        """Bits of a sum of codes: a party knows its own, so that those of the others need to fit."""
        return max(self.bits, ((self.parties - 1) * self.limit).bit_length() + 1)

    @property
    def push_bits(self) -> int:
        """Bits of a code on its way to the server; a mask takes the whole ring."""
        return self.ring_bits if self.blind else self.bits

    @property
    def largest_scale(self) -> int:
        """No difference is larger than the grid."""
        return MOST_BITS - self.bits

    def scale_for(self, moved: NDArray[np.signedinteger[Any]], parts: int = 1) -> int:
        """The scale for differences like these, or like each of so many independent parts that they are the sum of."""
        wide = moved.astype(np.int64).reshape(-1)
        wanted, scale = _STEP_SQUARED[self.bits] * int(wide @ wide), 0
        while scale < self.largest_scale and 4.0**scale * wide.size * parts < wanted:
            scale += 1
        return scale


def few_bits_of(run: RunSettings) -> FewBits | None:
    """How the predictions of this run travel as differences; None where each travels whole."""
    bits = run.training.value_bits
    if bits == "auto" or bits >= GRID.bits:
        return None
    few = FewBits(
        bits=bits,
        parties=len(run.parties),
        in_step=run.training.staleness == 0 and run.privacy.labels == "shared",
        blind=run.privacy.server == "blind",
    )
    if few.ring_bits > MOST_BITS:
        raise SettingsError(
            f"value_bits = {few.bits} has no room for the sums of {few.parties} parties; set value_bits = 16"
        )
    return few


class CommonScale:
    """The scale that all parties use, found from totals that all have. It may grow at once, and falls slowly.

    Nothing else is needed to agree on it, and nothing of a party shows in it that is not in the totals.
    """

    def __init__(self, few: FewBits) -> None:
        self._few = few
        self.scale = few.scale_for(_FIRST, few.parties)

    def learn(self, moved: NDArray[np.int32]) -> None:
        """A total has moved by this; each party's part is taken to have moved by as much as independent parts do."""
        self.scale = max(self._few.scale_for(moved, self._few.parties), self.scale - 1)


def own_scale(few: FewBits, wanted: Codes, held: Codes) -> int:
    """The scale of a party that chooses for itself: by its own differences.

    It is no coarser than the largest of them needs: else all might be below half a step, and none would ever leave.
    """
    moved = wanted.astype(np.int32) - held
    scale, largest = few.scale_for(moved), int(np.abs(moved).max(initial=0))
    while scale and few.limit << (scale - 1) >= largest:
        scale -= 1
    return scale


def round_difference(wanted: Codes, held: Codes, scale: int, limit: int, most: int) -> Codes:
    """Codes of the differences, rounded to steps of 2**scale; with them added none is past `most`."""
    codes = np.empty_like(held)
    _round(wanted.reshape(-1), held.reshape(-1), scale, limit, most, codes.reshape(-1))
    return codes


def added(held: Codes, codes: Codes, scale: int) -> Codes:
    """What the server has after a difference."""
    return held + np.left_shift(codes, scale)


@numba.njit(nogil=True, cache=True)
def _round(wanted: Codes, held: Codes, scale: int, limit: int, most: int, codes: Codes) -> None:
    half = (1 << scale) >> 1
    for place in range(len(codes)):
        before = np.int64(held[place])
        code = (np.int64(wanted[place]) - before + half) >> scale
        code = min(max(code, np.int64(-limit)), np.int64(limit))
        if before + (code << scale) > most:
            code -= 1
        if before + (code << scale) < -most:
            code += 1
        codes[place] = code
