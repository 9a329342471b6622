"""Sums of numbers without rounding, so that they do not depend on the order of the rows nor on how they are cut.

A number is a whole number of 53 bits times a power of two. The whole numbers of each power are added in two halves
that a double holds exactly, and the rest is Python's whole numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
_BITS = 53
_HALF = 26
_LOWEST = -1074 - _BITS
"""No power of two of a double is lower, counted as `frexp` does and less the bits of the whole number."""
_AT_ONCE = 2**20
_SPLIT = 2.0**27 + 1.0
"""Veltkamp's: cuts a double into two of at most 26 bits."""


@dataclass
class ExactSum:
    """The sum of all numbers added so far."""

    _parts: Counter[int] = field(default_factory=Counter)
    """By power of two, the sum of the whole numbers."""

    def add(self, values: Values) -> None:
        """Add finite numbers."""
        for start in range(0, len(values), _AT_ONCE):
            self._add(values[start : start + _AT_ONCE])

    def _add(self, values: Values) -> None:
        fractions, powers = np.frexp(values)
        whole = np.ldexp(fractions, _BITS).astype(np.int64)
        lowest = int(powers.min(initial=0))
        high = np.bincount(powers - lowest, (whole >> _HALF).astype(np.float64))
        low = np.bincount(powers - lowest, (whole & (2**_HALF - 1)).astype(np.float64))
        for power in np.flatnonzero((high != 0) | (low != 0)).tolist():
            self._parts[power + lowest - _BITS] += (int(high[power]) << _HALF) + int(low[power])

    def state(self) -> dict[str, int]:
        """All of it, for `merge`."""
        return {str(power): part for power, part in self._parts.items() if part}

    def merge(self, state: Mapping[str, int]) -> None:
        """Add what another sum has added."""
        for power, part in state.items():
            self._parts[int(power)] += part

    @property
    def scaled(self) -> int:
        """The sum as a whole number of the smallest unit there is."""
        return sum(part << (power - _LOWEST) for power, part in self._parts.items())


@dataclass
class ExactMoments:
    """Count, mean and variance of numbers, each rounded once."""

    count: int = 0
    _sum: ExactSum = field(default_factory=ExactSum)
    _squares: ExactSum = field(default_factory=ExactSum)
    _overflows: bool = False

    def add(self, values: Values) -> None:
        """Add finite numbers."""
        self.count += len(values)
        self._sum.add(values)
        with np.errstate(over="ignore", invalid="ignore"):
            squares, rest = _squared(values)
        if not (np.isfinite(squares).all() and np.isfinite(rest).all()):
            self._overflows = True
            return
        self._squares.add(squares)
        self._squares.add(rest)

    def add_repeated(self, value: float, times: int) -> None:
        """Add the same number several times."""
        for start in range(0, times, _AT_ONCE):
            self.add(np.full(min(times - start, _AT_ONCE), value))

    def state(self) -> dict[str, Any]:
        """All of it, for `merge`."""
        sums = {"sum": self._sum.state(), "squares": self._squares.state()}
        return {"count": self.count, "overflows": self._overflows, **sums}

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add the numbers that others have added: the bits are those of all numbers added to one."""
        self.count += state["count"]
        self._overflows = self._overflows or state["overflows"]
        self._sum.merge(state["sum"])
        self._squares.merge(state["squares"])

    @property
    def mean(self) -> float:
        """The mean; 0 of none."""
        return self._sum.scaled / (self.count << -_LOWEST) if self.count else 0.0

    @property
    def variance(self) -> float:
        """The mean squared deviation; infinite where squares are too large for a double."""
        if not self.count or self._overflows:
            return math.inf if self._overflows else 0.0
        # n^2 variance = n sum x^2 - (sum x)^2, all in whole numbers of the square of the smallest unit
        spread = self.count * (self._squares.scaled << -_LOWEST) - self._sum.scaled**2
        return max(spread, 0) / (self.count**2 << (-2 * _LOWEST))


def _squared(values: Values) -> tuple[Values, Values]:
    """The squares, and what their rounding left out: Dekker's product."""
    squares = values * values
    big = _SPLIT * values
    high = big - (big - values)
    low = values - high
    return squares, ((high * high - squares) + 2.0 * high * low) + low * low
