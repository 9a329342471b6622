"""A run as its page shows it: one sentence, a row per party, stripes of the last minute. It knows no network."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from fdml.monitor.status import PartyStatus, RunStatus

Level = Literal["", "waiting", "late", "done"]
_NOTED_SECONDS = 1.0
"""A shorter wait is not said: every step has some."""
_STRIPE_SECONDS = 60
_RATE_SECONDS = 20.0
"""The speed is that of so many last seconds."""
_MINUTE, _HOUR = 60.0, 3600.0


@dataclass(frozen=True)
class LiveFacts:
    """What does not change while a run is watched."""

    run: str
    side: str
    """Who watches: a party, or "server"."""
    parties: tuple[str, ...]
    peer_timeout: float
    """Seconds after which a wait ends the run."""
    rows_per_step: float | None = None
    blocks: int | None = None
    """Steps of an epoch; None where that is not known here."""
    epochs: int | None = None


@dataclass(frozen=True)
class Sentence:
    """What a person reads first."""

    text: str
    level: Level = ""
    advice: str = ""
    """What to do, where there is something to do."""


@dataclass(frozen=True)
class _Sample:
    at: float
    parties: Mapping[str, PartyStatus]


class LiveRun:
    """Looks at a run again and again. What it keeps does not grow with the run."""

    def __init__(self, facts: LiveFacts, clock: Callable[[], float] = time.monotonic) -> None:
        self.facts = facts
        self._clock = clock
        self._samples: deque[_Sample] = deque()
        self._stripes: dict[str, deque[str]] = {}
        self._striped_at = clock() - 1.0
        self.status: RunStatus | None = None
        """The last that the server said."""
        self._silent_since: float | None = None
        self._trouble = ""

    def note(self, status: RunStatus) -> None:
        """The server has answered."""
        now = self._clock()
        status = self._with_counts(status)
        self.status, self._silent_since, self._trouble = status, None, ""
        self._samples.append(_Sample(now, {each.name: each for each in status.parties}))
        while len(self._samples) > 2 and now - self._samples[0].at > _RATE_SECONDS:
            self._samples.popleft()
        if now - self._striped_at >= 1.0:
            self._striped_at = now
            for party in status.parties:
                stripe = self._stripes.setdefault(party.name, deque(maxlen=_STRIPE_SECONDS))
                stripe.append(_code(party, _awaited_seconds(status, party.name)))

    def _with_counts(self, status: RunStatus) -> RunStatus:
        """A server that has closed a finished run counts nothing of it any more: what it had counted stays."""
        known = {} if self.status is None else {each.name: each for each in self.status.parties}
        parties = [
            replace(each, bytes_in=old.bytes_in, bytes_out=old.bytes_out, waited_seconds=old.waited_seconds)
            if each.finished and (old := known.get(each.name)) is not None and old.bytes_in > each.bytes_in
            else each
            for each in status.parties
        ]
        return replace(status, parties=tuple(parties))

    def note_silence(self, why: str) -> None:
        """The server does not answer."""
        if self._silent_since is None:
            self._silent_since = self._clock()
        self._trouble = why

    def note_refusal(self, why: str) -> None:
        """The server answers, but says nothing of the run."""
        self._silent_since, self._trouble = None, why

    def note_own_end(self) -> None:
        """This side has finished, by its own files: a server may end before it was asked once more."""
        if self.status is not None:
            own = self.facts.side
            end = max(0, self.status.steps - 1)
            parties = [
                replace(each, finished=True, served=end) if each.name == own else each for each in self.status.parties
            ]
            self.status = replace(self.status, parties=tuple(parties))

    @property
    def step(self) -> int:
        """Steps that the slowest party has done; 0 where none is known."""
        return 0 if self.status is None else 1 + min((each.served for each in self.status.parties), default=-1)

    @property
    def seconds_left(self) -> float | None:
        """By the speed of the last seconds; None where that says nothing."""
        rate = self._rate(lambda sample: min(each.served for each in sample.parties.values()))
        if self.status is None or not rate:
            return None
        return max(0, self.status.steps - self.step) / rate

    def _rate(self, value: Callable[[_Sample], float]) -> float | None:
        if len(self._samples) < 2 or not self._samples[-1].parties or not self._samples[0].parties:
            return None
        first, last = self._samples[0], self._samples[-1]
        seconds = last.at - first.at
        return (value(last) - value(first)) / seconds if seconds > 0.0 else None

    @property
    def sentence(self) -> Sentence:
        """Where the run is, and who holds it up."""
        found = self.status
        if self._silent_since is not None:
            silent = duration(self._clock() - self._silent_since)
            return Sentence(
                f"The server has not answered for {silent}: {self._trouble}",
                "late",
                "Start it again with the same `fdml serve` command; the parties reconnect by themselves.",
            )
        if self._trouble:
            return Sentence(f"{self._trouble[0].upper()}{self._trouble[1:]}.", "waiting")
        if found is None:
            return Sentence("The server is being asked.")
        if found.parties and all(each.finished for each in found.parties):
            return Sentence(f"Finished: all {len(found.parties)} parties have done {found.steps:,} steps.", "done")
        seconds = max((each.waiting_seconds for each in _blocked(found)), default=0.0)
        seconds = 0.0 if seconds < _NOTED_SECONDS else seconds
        if not seconds and not _absent(found):
            left = self.seconds_left
            return Sentence(f"{self._where(found)}{'' if left is None else f', about {duration(left)} left'}.")
        if found.steps and not any(each.connected for each in found.parties if not each.finished):
            return self._standstill(found)
        return self._wait(found, seconds)

    def _where(self, found: RunStatus) -> str:
        if not found.steps:
            return "Before the first step: the parties find their shared rows"
        epoch = ""
        if self.facts.blocks and self.facts.epochs:
            epoch = f", epoch {min(self.step // self.facts.blocks + 1, self.facts.epochs)} of {self.facts.epochs}"
        return f"Step {self.step:,} of {found.steps:,}{epoch}"

    def _standstill(self, found: RunStatus) -> Sentence:
        """Nobody is there: all have ended, or have given up waiting for somebody."""
        names = self._listed(_absent(found))
        return Sentence(
            f"The run stands still: no party is there. {self._where(found)}.",
            "late",
            f"Start `fdml join` again at {names}: the run goes on where it stopped, and nothing is lost.",
        )

    def _wait(self, found: RunStatus, seconds: float) -> Sentence:
        gone = _absent(found)
        held_up_by = _held_up_by(found) or gone
        since = f", {duration(seconds)} so far" if seconds else ""
        states = "".join(f"; {each.name} is {each.state}" for each in gone)
        late = bool(found.steps) and seconds > self.facts.peer_timeout / 2
        return Sentence(
            f"Waiting for {self._listed(held_up_by)}{since}{states}. {self._where(found)}.",
            "late" if late else "waiting",
            " ".join(self._advice(found, held_up_by, seconds)),
        )

    def _advice(self, found: RunStatus, held_up_by: list[PartyStatus], seconds: float) -> Iterator[str]:
        gone, here = _absent(found), [each for each in held_up_by if each.connected]
        if here:
            what = "its process runs, has" if len(here) == 1 else "their processes run, have"
            who = [each.name for each in here]
            ask = "See here" if who == [self.facts.side] else f"Ask {_listed(who)}"
            yield f"{ask} whether {what} processor time and a line to the server."
        if gone and not found.steps and not any(each.incarnation for each in gone):
            yield f"Start `fdml join` at {self._listed(gone)}: the run begins once all parties are there."
        elif gone:
            yield f"Start `fdml join` again at {self._listed(gone)}: it goes on where it stopped."
        if found.steps and seconds:
            left = max(0.0, self.facts.peer_timeout - seconds)
            several = len(_blocked(found)) > 1
            yield (
                f"{self._listed(_blocked(found))} {'give' if several else 'gives'} up in "
                f"{duration(left)} (peer_timeout_seconds); started again, {'they go' if several else 'it goes'} on."
            )

    def _listed(self, parties: Iterable[PartyStatus]) -> str:
        """Their names; the party whose page this is knows itself as such."""
        return _listed(f"{each.name} (this party)" if each.name == self.facts.side else each.name for each in parties)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each party, as this side may see it."""
        found = self.status
        if found is None:
            return []
        if self._silent_since is None:
            return [self._row(each, _awaited_seconds(found, each.name)) for each in found.parties]
        old = {"waits_for": [], "waiting_seconds": 0.0}
        return [{**self._row(each, 0.0), **old, "state": _when_asked(each)} for each in found.parties]

    def _row(self, party: PartyStatus, awaited: float) -> dict[str, Any]:
        speed = self._rate(lambda sample: sample.parties[party.name].served)
        waiting = self._rate(lambda sample: sample.parties[party.name].waited_seconds)
        rows = self.facts.rows_per_step
        is_counted = not party.finished or party.bytes_in > 0  # else it had ended before anybody looked
        return {
            "name": party.name,
            "own": party.name == self.facts.side,
            "state": party.state,
            "awaited_seconds": round(awaited, 1) if awaited >= _NOTED_SECONDS else 0.0,
            "step": party.served + 1,
            "rows_per_second": None if speed is None or rows is None or party.finished else round(speed * rows),
            "waiting_share": None if waiting is None else round(min(1.0, max(0.0, waiting)), 3),
            "last_seen": _last_seen(party),
            "waits_for": list(party.waits_for) if party.connected else [],  # who is gone has given up
            "waiting_seconds": round(party.waiting_seconds, 1) if party.connected else 0.0,
            "waited_seconds": round(party.waited_seconds, 1) if is_counted else None,
            "bytes_in": party.bytes_in if is_counted else None,
            "bytes_out": party.bytes_out if is_counted else None,
            "restarts": max(0, party.incarnation - 1),
            "gone_seconds": round(party.gone_seconds),
            "stands_out": party.stands_out,
            "stripe": "".join(self._stripes.get(party.name, ())),
        }


def _last_seen(party: PartyStatus) -> str:
    """When the party was last here; one that stands still is connected all the same."""
    if party.finished:
        return "finished"
    if party.connected:
        return "connected"
    if party.gone_seconds:
        return f"{duration(party.gone_seconds)} ago"
    return "just now" if party.incarnation else "never"


def _when_asked(party: PartyStatus) -> str:
    """The state of a party whose server does not answer."""
    return party.state if party.finished else f"{party.state} when last asked"


def _code(party: PartyStatus, awaited: float) -> str:
    """A letter for what a party did in a second: computing, waiting, held up the others, gone, finished."""
    if party.finished:
        return "f"
    if not party.connected:
        return "g"
    if party.waits_for:
        return "w"
    return "h" if awaited >= _NOTED_SECONDS else "c"


def _awaited_seconds(found: RunStatus, name: str) -> float:
    """How long others have waited for a party that waits for nobody itself."""
    if name not in [each.name for each in _held_up_by(found)]:
        return 0.0
    return max((each.waiting_seconds for each in _blocked(found) if name in each.waits_for), default=0.0)


def _blocked(found: RunStatus) -> list[PartyStatus]:
    """Those that wait for others. Who is gone waits no more: it has ended, or given up."""
    return [each for each in found.parties if each.connected and each.waits_for]


def _held_up_by(found: RunStatus) -> list[PartyStatus]:
    """Those that others wait for and that wait for nobody themselves; if all wait, all that are waited for."""
    blocked = _blocked(found)
    wanted = {name for each in blocked for name in each.waits_for}
    held_up_by = [each for each in found.parties if each.name in wanted]
    return [each for each in held_up_by if each not in blocked] or held_up_by


def _absent(found: RunStatus) -> list[PartyStatus]:
    return [each for each in found.parties if not each.connected and not each.finished]


def _listed(names: Iterable[str]) -> str:
    *most, last = list(names) or ["nobody"]
    return f"{', '.join(most)} and {last}" if most else last


def duration(seconds: float) -> str:
    """A length of time for a person."""
    if seconds < 10.0:
        return f"{seconds:.1f} s"
    if seconds < 1.5 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 1.5 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    hours, rest = divmod(seconds, _HOUR)
    return f"{hours:.0f} h {rest / _MINUTE:.0f} min"
