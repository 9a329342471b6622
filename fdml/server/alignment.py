"""The server's alignment phase: it stores what parties post, and knows for whom a party that fetches has to wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_calls import FetchAnswer, FetchCall, PostCall
from fdml.protocol.alignment_messages import RowCounts
from fdml.protocol.quoting import shown
from fdml.server.bulletin import BulletinStore
from fdml.server.membership import check_same_run

_HERE_SECONDS = 5.0
"""A party at work calls every second."""


class AlignmentPhase:
    """The rules around the stored messages: which run a call belongs to, who was seen when, who waits for whom."""

    def __init__(
        self,
        store: BulletinStore,
        parties: Sequence[str],
        run_hash: bytes,
        clock: Callable[[], float],
        *,
        digest: bytes | None = None,
    ) -> None:
        """`digest` is that of rows that are aligned already."""
        self._store = store
        self._run_hash = run_hash
        self._clock = clock
        self._seen = dict.fromkeys(parties, clock())
        """When a party last called."""
        self._called: set[str] = set()
        self._digest = digest
        self._refusals: dict[str, str] = {}
        """Why a party was last refused."""
        self._waits: dict[str, list[str]] = {}

    @property
    def digest(self) -> bytes | None:
        """The hash of the shared rows; None before the parties have found them."""
        if self._digest is None:
            self._digest = self._store.digest
        return self._digest

    def split(self, holdout: float) -> RowCounts | None:
        """How many rows the run trains on and holds out; None where the server has not found them itself."""
        return self._store.split(holdout)

    def largest_post(self, party: str) -> int:
        """Bytes of the largest message that a party may post now."""
        return self._store.largest_post(party)

    def is_here(self, party: str) -> bool:
        """Whether a party has called just now."""
        return self._clock() - self._seen[party] < _HERE_SECONDS and party in self._called

    def waits_of(self, party: str) -> list[str]:
        """For whom a party has to wait; empty if it has what it asked for, or is gone."""
        names = self._waits.get(party, [])
        return names if names and self.is_here(party) else []

    def saw(self, party: str) -> None:
        """A party has called."""
        self._seen[party] = self._clock()
        self._called.add(party)

    def post(self, sender: str, call: PostCall) -> None:
        """Store a message, durable on return; a refused one changes nothing and raises `MessageRefused`."""
        self._check(sender, call)
        try:
            self._store.post(sender, call.to, call.about, call.message)
        except MessageRefused as refused:
            self._refusals[sender] = shown(str(refused))
            raise
        except OSError as error:
            raise _not_stored(error) from None
        self._refusals.pop(sender, None)

    def fetch(self, reader: str, call: FetchCall) -> FetchAnswer | None:
        """The message asked for; None while it is not there."""
        self._check(reader, call)
        try:
            message = self._store.fetch(reader, call.kind, call.sender, call.about)
        except OSError as error:
            raise _not_stored(error) from None
        if message is None:
            return None
        self._waits.pop(reader, None)
        return FetchAnswer(message)

    def waiting(self, reader: str, call: FetchCall) -> FetchAnswer:
        """What to answer while the message is not there."""
        names = self._waits[reader] = self._store.waits_for(reader, call.kind, call.sender, call.about)
        now = self._clock()
        return FetchAnswer(
            waits_for=tuple(names),
            silent_seconds=tuple(now - self._seen[name] for name in names),
            refusals=tuple(self._refusals.get(name, "") for name in names),
        )

    def _check(self, party: str, call: PostCall | FetchCall) -> None:
        self.saw(party)
        try:
            check_same_run(party, call.protocol, call.run_hash, self._run_hash)
        except MessageRefused as refused:
            self._refusals[party] = shown(str(refused))
            raise


def _not_stored(error: OSError) -> MessageRefused:
    """The party is not to blame and may try again."""
    return MessageRefused(
        f"the server cannot use its disk ({error.strerror or error}); make room at the server, then run the same "
        f"command again",
        Refusal.NOT_STORED,
    )
