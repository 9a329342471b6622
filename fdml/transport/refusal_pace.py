"""How soon a refused call is answered: whoever is refused often waits longer and longer, and so asks less often."""

from __future__ import annotations

from collections.abc import Callable

PER_SECOND = 20.0
"""Refusals of one caller that are answered in a second, in the long run."""
BURST = 20
"""Refusals that are answered at once before that counts: an honest party that is set up wrong needs a few."""
LONGEST_SECONDS = 5.0
"""No answer is held back longer, so that a caller always learns why it was refused."""


class RefusalPace:
    """The refusals of every caller. A party with a valid certificate that sends rubbish takes little of the server."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._free_at: dict[str, float] = {}
        """By caller: when its next refusal would be due if there were no burst."""

    def seconds(self, caller: str) -> float:
        """Count one more refusal of a caller; how long to wait before answering it."""
        now = self._clock()
        due = max(self._free_at.get(caller, now), now)
        self._free_at[caller] = min(due, now + LONGEST_SECONDS + BURST / PER_SECOND) + 1.0 / PER_SECOND
        return min(max(due - now - BURST / PER_SECOND, 0.0), LONGEST_SECONDS)
