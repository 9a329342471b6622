"""Which parties are here, which are gone and since when, and whom the server has refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fdml.events import Waiting
from fdml.protocol.certificates import SERVER
from fdml.protocol.quoting import shown
from fdml.protocol.waited_for import NEVER_SEEN, WaitedFor

_HERE_SECONDS = 5.0
"""A party at work calls every second."""
_LONGEST_REFUSAL = 400
_FIRST_REPORT_SECONDS, _NEXT_REPORT_SECONDS = 10.0, 60.0
"""When the server first says who is missing, and how often it says the same again."""


class Presence:
    """Calls and streams of every party, for those that wait for it; lost when the server ends."""

    def __init__(self, parties: Sequence[str], clock: Callable[[], float]) -> None:
        self._parties = tuple(parties)
        self._clock = clock
        self._seen: dict[str, float] = {}
        """When a party last called, or its stream ended."""
        self._streaming: set[str] = set()
        self._refusals: dict[str, str] = {}

    def saw(self, party: str) -> None:
        """A party has called."""
        self._seen[party] = self._clock()

    def joined(self, party: str) -> None:
        """A party has a stream."""
        self._streaming.add(party)
        self._refusals.pop(party, None)

    def left(self, party: str) -> None:
        """A party's stream has ended."""
        self._streaming.discard(party)
        self.saw(party)

    def refuse(self, party: str, reason: str) -> None:
        """The server has refused what a party sent, and why."""
        self._refusals[party] = shown(reason, _LONGEST_REFUSAL)

    def accept(self, party: str) -> None:
        """The server has taken what a party sent."""
        self._refusals.pop(party, None)

    def is_here(self, party: str) -> bool:
        """Whether a party has a stream, or has called just now and was not refused."""
        called = party in self._seen and self._clock() - self._seen[party] < _HERE_SECONDS
        return party in self._streaming or (called and party not in self._refusals)

    def gone_seconds(self, party: str) -> float:
        """How long ago a party was last here; 0 if it is, or has never come."""
        return 0.0 if self.is_here(party) or party not in self._seen else self._clock() - self._seen[party]

    def missing(self, reader: str) -> list[str]:
        """All parties that are not here, but for the one that asks."""
        return [party for party in self._parties if party != reader and not self.is_here(party)]

    def waited_for(self, names: Iterable[str]) -> tuple[WaitedFor, ...]:
        """Parties that someone waits for, as others are told of them."""
        return tuple(self._described(name) for name in names)

    def _described(self, party: str) -> WaitedFor:
        if self.is_here(party):
            return WaitedFor(party)
        seconds = self.gone_seconds(party) if party in self._seen else NEVER_SEEN
        return WaitedFor(party, seconds, self._refusals.get(party, ""))


class MissingReport:
    """Says at the server whom a run waits for: once somebody is missing for long, when it is another, and every minute.

    A server waits as long as it takes before a run is under way, so this is all that its operator hears.
    """

    def __init__(self, presence: Presence, clock: Callable[[], float]) -> None:
        self._presence = presence
        self._clock = clock
        self._since: float | None = None
        """When the first of those who are missing now was first missed."""
        self._reported_at = 0.0
        self._reported: tuple[str, ...] = ()

    def due(self, finished: Callable[[str], bool]) -> Waiting | None:
        """What there is to say now; parties that have `finished` are not missed."""
        now, names = self._clock(), tuple(name for name in self._presence.missing("") if not finished(name))
        if not names:
            self._since, self._reported = None, ()
            return None
        if self._since is None:
            self._since = self._reported_at = now
        pause = _NEXT_REPORT_SECONDS if names == self._reported else _FIRST_REPORT_SECONDS
        if now - self._reported_at < pause:
            return None
        self._reported_at, self._reported = now, names
        why = ", ".join(each.text for each in self._presence.waited_for(names))
        return Waiting(SERVER, names, why, now - self._since)
