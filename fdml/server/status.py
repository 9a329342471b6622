"""How a run stands: who is where, who waits for whom and since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass

from fdml.protocol import wire_pb2 as pb
from fdml.server.alignment import AlignmentPhase
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

    def __init__(
        self, state: RunState, alignment: AlignmentPhase, settings: RunSettings, clock: Callable[[], float]
    ) -> None:
        self._state = state
        self._alignment = alignment
        self._clock = clock
        self._settings = settings
        self._waits = {party: WaitTimer() for party in settings.parties}
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    @property
    def traffic(self) -> dict[str, tuple[int, int]]:
        """Bytes that came from each party and that went to it."""
        return {party: (self.bytes_in[party], self.bytes_out[party]) for party in self._settings.parties}

    def note_waits(self, joined: Container[str]) -> None:
        """Take in who waits now."""
        now = self._clock()
        for party, waits in self._waits.items():
            waits.note(self.is_waiting(party, joined), now)

    def is_waiting(self, party: str, joined: Container[str]) -> bool:
        """Whether a party can do nothing until another one has: shown its rows, given the labels, pushed, or ended."""
        coordinator = self._state.coordinator
        if self._alignment.waits_of(party):
            return True
        if coordinator is None:
            return party in joined and party != self._settings.label_party
        if coordinator.served(party) < coordinator.pushed(party):
            return True
        done = coordinator.served(party) >= coordinator.end - 1
        return done and party == self._settings.label_party and not self._state.has_finished(party)

    def waits_for(self, party: str) -> list[str]:
        """Whom a waiting party waits for."""
        if aligning := self._alignment.waits_of(party):
            return aligning
        coordinator = self._state.coordinator
        if coordinator is None or coordinator.served(party) < coordinator.pushed(party):
            return self._state.waits_for(party)
        return [other for other in self._settings.parties if other != party and not self._state.has_finished(other)]

    def report(self, joined: Container[str]) -> pb.RunStatus:
        """All of it."""
        coordinator = self._state.coordinator
        status = pb.RunStatus(run=self._settings.name, steps=0 if coordinator is None else coordinator.end)
        for party in self._settings.parties:
            waits = self._waits[party]
            waiting = 0.0 if waits.since is None else self._clock() - waits.since
            status.parties.add(
                name=party,
                connected=party in joined or (self._alignment.is_here(party) and not self._state.incarnation(party)),
                pushed=-1 if coordinator is None else coordinator.pushed(party),
                served=-1 if coordinator is None else coordinator.served(party),
                waits_for=self.waits_for(party) if waiting else [],
                waiting_seconds=waiting,
                waited_seconds=waits.total + waiting,
                bytes_in=self.bytes_in[party],
                bytes_out=self.bytes_out[party],
                incarnation=self._state.incarnation(party),
                finished=self._state.has_finished(party),
                aligning=self._alignment.is_here(party) and not self._state.incarnation(party),
                aligned=self._alignment.digest is not None,
            )
        for metrics in self._state.history.values():
            status.history.add(**{name: value for name, value in vars(metrics).items() if value is not None})
        status.refused.update(self.refused)
        return status
