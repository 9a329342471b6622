"""The server's knowledge of who is where, who waits for whom and since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass

from fdml.events import Event, PartyProgress
from fdml.monitor.status import PartyStatus, RunStatus
from fdml.server.alignment import AlignmentPhase
from fdml.server.part_sizes import PartSizes
from fdml.server.run_state import RunState
from fdml.settings import RunSettings


@dataclass
class WaitTimer:
    """Time that a party has waited for others."""

    since: float | None = None
    """Start of the present wait; None if the party does not wait."""
    total: float = 0.0
    """Seconds of all waits that have ended."""

    def note(self, waiting: bool, now: float) -> None:
        """Start or end a wait."""
        if waiting and self.since is None:
            self.since = now
        elif not waiting and self.since is not None:
            self.total += now - self.since
            self.since = None

    def present(self, now: float) -> float:
        """Seconds of the present wait; 0 without one."""
        return 0.0 if self.since is None else now - self.since


class StatusTracker:
    """Counters and waits of a run, for `fdml status`; they are lost when the server ends.

    `connected` are the parties with an open stream.
    """

    def __init__(
        self,
        state: RunState,
        alignment: AlignmentPhase,
        settings: RunSettings,
        clock: Callable[[], float],
    ) -> None:
        self._state = state
        self._alignment = alignment
        self._settings = settings
        self._clock = clock
        self._waits = {party: WaitTimer() for party in settings.parties}
        self.bytes_in: Counter[str] = Counter()
        """Bytes from each party."""
        self.bytes_out: Counter[str] = Counter()
        """Bytes to each party."""
        self.sizes = PartSizes(settings.parties)
        self.refused: Counter[str] = Counter()
        """Number of refused messages by reason."""
        self._reported: dict[str, PartyProgress] = {}

    @property
    def traffic(self) -> dict[str, tuple[int, int]]:
        """Bytes that came from each party and that went to it."""
        return {party: (self.bytes_in[party], self.bytes_out[party]) for party in self._settings.parties}

    def note_push(self, party: str, step: int) -> list[Event]:
        """A push was taken: what there is to tell of its largest prediction."""
        training = self._state.coordinator
        if training is None:
            return []
        return self.sizes.note(party, step, training.largest.get(party), training.schedule)

    def note_waits(self, connected: Container[str]) -> None:
        """Start and end the timers of those who wait now."""
        now = self._clock()
        for party, timer in self._waits.items():
            timer.note(self.is_waiting(party, connected), now)

    def is_waiting(self, party: str, connected: Container[str]) -> bool:
        """Whether the party is blocked on another party: on its ids, labels, pushes, or end."""
        coordinator = self._state.coordinator
        if self._alignment.waits_of(party):
            return True
        if coordinator is None:
            return party in connected and party != self._settings.label_party
        served = coordinator.served(party)
        if served < coordinator.pushed(party):
            return True
        done = served >= coordinator.end - 1 and not self._state.has_finished(party)
        return done and (party == self._settings.label_party or self._awaits_best_epoch)

    @property
    def _awaits_best_epoch(self) -> bool:
        """Whether parties that have trained to the end are still to be told which epoch's model they keep."""
        return self._settings.has_outcome and self._state.best_epoch is None

    def waits_for(self, party: str) -> list[str]:
        """The parties that a waiting party is blocked on."""
        if aligning := self._alignment.waits_of(party):
            return aligning
        coordinator = self._state.coordinator
        if coordinator is None:
            wanted = {*self._state.waits_for(party), *self._alignment.presence.missing(party)}
            return [other for other in self._settings.parties if other in wanted]
        if coordinator.served(party) < coordinator.pushed(party):
            return self._state.waits_for(party)
        if self._awaits_best_epoch and party != self._settings.label_party:
            return [self._settings.label_party]
        return [other for other in self._settings.parties if other != party and not self._state.has_finished(other)]

    def progress(self, connected: Container[str]) -> list[Event]:
        """What has changed of the parties since the last call."""
        training, found = self._state.coordinator, self.report(connected)
        epochs = 0 if training is None else training.schedule.epochs
        now = {
            each.name: PartyProgress(
                each.name, each.served + 1, found.steps, epochs, each.state.partition(" for ")[0], each.waits_for
            )
            for each in found.parties
        }
        changed: list[Event] = [each for name, each in now.items() if self._reported.get(name) != each]
        self._reported = now
        return changed

    def report(self, connected: Container[str]) -> RunStatus:
        """The status of the run now."""
        coordinator = self._state.coordinator
        return RunStatus(
            run=self._settings.name,
            steps=0 if coordinator is None else coordinator.end,
            parties=tuple(self._report_party(party, connected) for party in self._settings.parties),
            history=tuple(self._state.history.values()),
            refused=dict(self.refused),
        )

    def _report_party(self, party: str, connected: Container[str]) -> PartyStatus:
        coordinator, timer = self._state.coordinator, self._waits[party]
        waiting = timer.present(self._clock())
        aligning = self._alignment.presence.is_here(party) and not self._state.incarnation(party)
        return PartyStatus(
            name=party,
            connected=party in connected or aligning,
            pushed=-1 if coordinator is None else coordinator.pushed(party),
            served=-1 if coordinator is None else coordinator.served(party),
            waits_for=() if timer.since is None else tuple(self.waits_for(party)),
            waiting_seconds=waiting,
            waited_seconds=timer.total + waiting,
            bytes_in=self.bytes_in[party],
            bytes_out=self.bytes_out[party],
            incarnation=self._state.incarnation(party),
            finished=self._state.has_finished(party),
            aligning=aligning,
            aligned=self._alignment.digest is not None,
            largest_prediction=self.sizes.largest.get(party),
            stands_out=party in self.sizes.outliers,
            gone_seconds=0.0 if party in connected else self._alignment.presence.gone_seconds(party),
        )
