"""The other parties' part of every total: kept within what they may send, and watched.

A party that is broken or lies can send anything, and under masks no server can look at it. So every party cuts what
the others sent together to what they may, and tells how large it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from fdml.events import Event, LargestPart, Remark
from fdml.protocol.fixed_point import Codes, limit_others

_JUMP = 100.0
"""A growth within an epoch past which a person is told."""


class OthersPart:
    """What the other parties of a run sent one of them, block by block; `most` is the largest code of their sum."""

    def __init__(self, party: str, others: Sequence[str], most: int | None) -> None:
        self._party = party
        self._others = tuple(others)
        self._most = most
        self._largest: float | None = None
        """In this epoch; None before the first total."""
        self._before: float | None = None
        """The largest of the epoch before."""
        self._events: list[Event] = []
        self._has_cut = False

    def take(self, total: Codes, own: Codes, step: int) -> Codes:
        """The total, the others' part of it cut to what they may send."""
        if self._most is None:
            return total
        limited, largest = limit_others(total, own, self._most)
        self._largest = max(self._largest or 0.0, largest)
        if limited is not total and not self._has_cut:
            self._has_cut = True
            self._remark(
                f"the other parties' predictions of step {step} come to {largest:g}, more than they may send together; "
                f"they are cut to that, here and from now on: {self._named} sends what its model cannot have predicted"
            )
        return limited

    def end_epoch(self, epoch: int) -> None:
        """Note how large the others' part was in this epoch."""
        if self._largest is None or not self._others:
            return
        self._events.append(LargestPart(self._party, self._others, epoch, self._largest, self._before))
        if self._before is not None and self._largest > _JUMP * max(1.0, self._before):
            self._remark(
                f"the other parties' predictions have grown from {self._before:.3g} to {self._largest:.3g} within an "
                f"epoch; ask {self._named}"
            )
        self._before, self._largest = self._largest, None

    def events(self) -> list[Event]:
        """What has happened since the last call."""
        if not self._events:  # as after nearly every step
            return []
        found, self._events = self._events, []
        return found

    @property
    def _named(self) -> str:
        return " or ".join(repr(name) for name in self._others) or "nobody"

    def _remark(self, text: str) -> None:
        self._events.append(Remark(self._party, text))
