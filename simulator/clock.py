"""Virtual time: what happens when, all drawn from one seed."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from random import Random

RESTART = 0.03
"""Virtual seconds until a process that died is started again."""


class EventQueue:
    """What happens when, in virtual seconds; what falls on the same moment happens in the order of its planning."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.events = 0
        self._planned = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.trace: list[str] = []

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Plan an action."""
        self._planned += 1
        heapq.heappush(self._due, (self.now + seconds, self._planned, action))

    def next(self) -> bool:
        """Do what is due next; False if nothing is planned any more."""
        if not self._due:
            return False
        self.now, _, action = heapq.heappop(self._due)
        self.events += 1
        action()
        return True

    def about(self, seconds: float) -> float:
        """A random duration: mostly near `seconds`, now and then many times as long."""
        return self.random.expovariate(1.0 / seconds) * (10.0 if self.random.random() < 0.05 else 1.0)

    def note(self, what: str) -> None:
        """Write a line of the trace."""
        self.trace.append(f"{self.now:.6f} {what}")

    def trace_hash(self) -> str:
        """Equal only if everything happened in the same way."""
        return hashlib.blake2b("\n".join(self.trace).encode(), digest_size=16).hexdigest()
