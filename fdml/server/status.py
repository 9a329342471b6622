"""How a run stands: who is where, who waits for whom and since when."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass

from fdml.protocol import wire_pb2 as pb
from fdml.server.bulletin_service import BulletinService
from fdml.server.run_state import RunState
from fdml.settings import RunSettings


@dataclass
class WaitTimer:
    """How long a party has waited for others."""

    since: float | None = None
    total: float = 0.0

    def note(self, waiting: bool, now: float) -> None:
        """Take in whether the party waits now."""
        if waiting and self.since is None:
            self.since = now
        elif not waiting and self.since is not None:
            self.total += now - self.since
            self.since = None


class StatusTracker:
    """What the server can tell of its run besides the host's state; all of it is gone when the server ends.

    `joined` are the parties that have a line at the moment.
    """

    def __init__(self, host: RunState, desk: BulletinService, settings: RunSettings) -> None:
        self._host = host
        self._desk = desk
        self._settings = settings
        self._waits = {party: WaitTimer() for party in settings.parties}
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def note_waits(self, joined: Container[str]) -> None:
        """Take in who waits now."""
        now = time.monotonic()
        for party, waits in self._waits.items():
            waits.note(self.is_waiting(party, joined), now)

    def is_waiting(self, party: str, joined: Container[str]) -> bool:
        """Whether a party can do nothing until another one has: shown its rows, given the labels, pushed, or ended."""
        coordinator = self._host.coordinator
        if self._desk.waits_of(party):
            return True
        if coordinator is None:
            return party in joined and party != self._settings.label_party
        if coordinator.served(party) < coordinator.pushed(party):
            return True
        done = coordinator.served(party) >= coordinator.end - 1
        return done and party == self._settings.label_party and not self._host.has_finished(party)

    def waits_for(self, party: str) -> list[str]:
        """Whom a waiting party waits for."""
        if aligning := self._desk.waits_of(party):
            return aligning
        coordinator = self._host.coordinator
        if coordinator is None or coordinator.served(party) < coordinator.pushed(party):
            return self._host.waits_for(party)
        return [other for other in self._settings.parties if other != party and not self._host.has_finished(other)]

    def report(self, joined: Container[str]) -> pb.RunStatus:
        """All of it."""
        coordinator = self._host.coordinator
        status = pb.RunStatus(run=self._settings.name, steps=0 if coordinator is None else coordinator.end)
        for party in self._settings.parties:
            waits = self._waits[party]
            waiting = 0.0 if waits.since is None else time.monotonic() - waits.since
            status.parties.add(
                name=party,
                connected=party in joined or (self._desk.is_here(party) and not self._host.incarnation(party)),
                pushed=-1 if coordinator is None else coordinator.pushed(party),
                served=-1 if coordinator is None else coordinator.served(party),
                waits_for=self.waits_for(party) if waiting else [],
                waiting_seconds=waiting,
                waited_seconds=waits.total + waiting,
                bytes_in=self.bytes_in[party],
                bytes_out=self.bytes_out[party],
                incarnation=self._host.incarnation(party),
                finished=self._host.has_finished(party),
                aligning=self._desk.is_here(party) and not self._host.incarnation(party),
                aligned=self._desk.digest is not None,
            )
        for metrics in self._host.history.values():
            status.history.add(**{name: value for name, value in vars(metrics).items() if value is not None})
        status.refused.update(self.refused)
        return status
