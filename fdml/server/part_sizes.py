"""How large each party's predictions are: a plain server sees it, and names a party whose predictions explode."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from fdml.events import Event, LargestPart, Remark
from fdml.protocol.schedule import Schedule

_JUMP = 100.0
"""So many times what it was in the epoch before, or what it is at the others, makes a party stand out."""


class PartSizes:
    """The largest prediction of every party in its present epoch; known since the server was started."""

    def __init__(self, parties: Sequence[str]) -> None:
        self._parties = tuple(parties)
        self._last = dict.fromkeys(parties, -1)
        """The last step that was looked at."""
        self.largest: dict[str, float] = {}
        """Of the parties that have pushed."""
        self._before: dict[str, float] = {}
        """The same in the epoch before."""
        self.outliers: set[str] = set()
        """The parties that stand out."""

    def note(self, party: str, step: int, largest: float | None, schedule: Schedule) -> list[Event]:
        """Note the largest prediction of a push that was taken, None under masks; what there is to tell.

        A push that comes again does not count.
        """
        if step <= self._last[party] or largest is None:
            return []
        if step % schedule.blocks == 0 and party in self.largest:
            self._before[party] = self.largest.pop(party)
        self._last[party] = step
        self.largest[party] = max(self.largest.get(party, 0.0), largest)
        events: list[Event] = self._outlier(party, largest, step) if largest > _JUMP else []
        if schedule.ends_epoch(step):
            epoch = step // schedule.blocks + 1
            events.append(LargestPart("server", (party,), epoch, self.largest[party], self._before.get(party)))
        return events

    def _outlier(self, party: str, largest: float, step: int) -> list[Event]:
        if party in self.outliers:
            return []
        others = [size for other, size in self.largest.items() if other != party]
        usual = [median(others)] if others else []
        usual += [self._before[party]] if party in self._before else []
        if all(largest <= _JUMP * max(1.0, size) for size in usual):
            return []
        self.outliers.add(party)
        compared = f"{median(others):.3g} at the other parties" if others else "far less before"
        return [
            Remark(
                "server",
                f"party {party!r} stands out: its predictions reach {largest:.3g} at step {step}, beside {compared}; "
                f"its training has diverged, or it sends what its model cannot have predicted: ask that party",
            )
        ]
