"""A clock that stands still while the process does: a laptop's lid, a stopped container, a frozen machine."""

from __future__ import annotations

from collections.abc import Callable

_LONGEST_GAP = 2.0
"""Seconds between two looks at the clock of a process that runs: it looks every second."""


class AwakeClock:
    """Seconds in which this process was awake. A gap between two looks counts for `_LONGEST_GAP` at most."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._looked_at = clock()
        self._awake = 0.0

    def __call__(self) -> float:
        """The time now; the process must look at least every second."""
        now = self._clock()
        self._awake += min(now - self._looked_at, _LONGEST_GAP)
        self._looked_at = now
        return self._awake
