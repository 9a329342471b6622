"""What can travel between a party and the server; nothing else has a type to travel in.

No message names its sender: who sent it is known from the line it came by.
"""

from __future__ import annotations

from dataclasses import dataclass

from fdml.exchange.fixed_point import Codes


@dataclass(frozen=True)
class Release:
    """Predictions that have passed the guard; only a guard makes them. `(rows, outputs)`."""

    values: Codes


@dataclass(frozen=True)
class Push:
    """A party's local predictions of the block of one step."""

    step: int
    release: Release


@dataclass(frozen=True)
class Total:
    """The sum of all parties' predictions of the block of one step.

    `made_at` gives, in the order of the run's parties, the step for which each
    part was pushed: less than `step` where a part is stale, -1 where none came yet.
    """

    step: int
    values: Codes
    made_at: tuple[int, ...]

    @property
    def lag(self) -> int:
        """By how many steps the oldest part is stale; a part that never came counts from before step 0."""
        return self.step - min(self.made_at)


@dataclass(frozen=True)
class Reply:
    """A message from the server and the party it goes to."""

    to: str
    total: Total
