"""What the maths tells whoever listens; terminal, history and plots are listeners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class StepDone:
    """A party has learned from one block."""

    party: str
    step: int
    lag: int
    """By how many steps the oldest part of its total was stale."""


@dataclass(frozen=True)
class EpochDone:
    """A party has visited every block once more."""

    party: str
    epoch: int
    """Counted from 1."""


Event = StepDone | EpochDone
Listener = Callable[[Event], None]
