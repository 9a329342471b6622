"""Circuit breakers: a party that has not answered some questions in a row is left alone until a probe reaches it.

So a caller is told at once, instead of waiting for a deadline that others have waited for. Probes are questions of
their own, for a row that nobody has: no caller's request waits for one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

from fdml.serving.reasons import unreachable

OPENS_AFTER = 3
"""Questions in a row without an answer."""


@dataclass
class _Breaker:
    failures: int = 0
    why: str = ""
    since: float = 0.0


class Breakers:
    """One for each party that answers. It is used by several threads."""

    def __init__(self, parties: Iterable[str], clock: Callable[[], float] = monotonic) -> None:
        self._breakers = {name: _Breaker() for name in parties}
        self._clock = clock
        self._lock = threading.Lock()

    def note(self, asked: Iterable[str], absent: Mapping[str, str]) -> None:
        """What came of a question: a party that answered, with a refusal too, is there."""
        lost = unreachable(absent)
        with self._lock:
            for name in asked:
                breaker = self._breakers[name]
                if name not in lost:
                    breaker.failures = 0
                else:
                    breaker.failures += 1
                    breaker.why = lost[name]
                    if breaker.failures == OPENS_AFTER:
                        breaker.since = self._clock()

    def away(self) -> dict[str, str]:
        """The parties that are not asked, and why."""
        with self._lock:
            now = self._clock()
            return {
                name: f"{each.why}; it is tried again since {now - each.since:.0f} s"
                for name, each in self._breakers.items()
                if each.failures >= OPENS_AFTER
            }

    def missing(self) -> dict[str, str]:
        """The parties that have not answered the last question they were asked, and why."""
        with self._lock:
            return {name: each.why for name, each in self._breakers.items() if each.failures}
