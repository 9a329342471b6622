"""Which parties are here, which are gone and since when, and whom the server has refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fdml.protocol.quoting import shown
from fdml.protocol.waited_for import NEVER_SEEN, WaitedFor

_HERE_SECONDS = 5.0
"""A party at work calls every second."""
_LONGEST_REFUSAL = 400


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
