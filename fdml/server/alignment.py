"""The server's alignment phase: it stores what parties post, and knows for whom a party that fetches has to wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_calls import FetchAnswer, FetchCall, PostCall
from fdml.protocol.alignment_messages import RowCounts
from fdml.server.membership import check_same_run
from fdml.server.presence import Presence
from fdml.server.run_alignment import BulletinBoard


class AlignmentPhase:
    """The rules around the stored messages: which run a call belongs to, and who waits for whom."""

    def __init__(
        self,
        store: BulletinBoard,
        parties: Sequence[str],
        run_hash: bytes,
        clock: Callable[[], float],
        *,
        digest: bytes | None = None,
    ) -> None:
        """`digest` is that of rows that are aligned already."""
        self._store = store
        self._run_hash = run_hash
        self._parties = tuple(parties)
        self.presence = Presence(parties, clock)
        self._digest = digest
        self._waits: dict[str, list[str]] = {}

    @property
    def digest(self) -> bytes | None:
        """The hash of the shared rows; None before the parties have found them."""
        if self._digest is None:
            self._digest = self._store.digest
        return self._digest

    def split(self, holdout: float, seed: int) -> RowCounts | None:
        """How many rows the run trains on and holds out; None where the server has not found them itself."""
        return self._store.split(holdout, seed)

    def largest_post(self, party: str) -> int:
        """Bytes of the largest message that a party may post now."""
        return self._store.largest_post(party)

    def waits_of(self, party: str) -> list[str]:
        """For whom a party has to wait; empty if it has what it asked for, or is gone."""
        names = self._waits.get(party, [])
        return names if names and self.presence.is_here(party) else []

    def post(self, sender: str, call: PostCall) -> None:
        """Store a message, durable on return; a refused one changes nothing and raises `MessageRefused`."""
        self._check(sender, call)
        try:
            self._store.post(sender, call.to, call.about, call.message)
        except MessageRefused as refused:
            self.presence.refuse(sender, str(refused))
            raise
        except OSError as error:
            raise _not_stored(error) from None
        self.presence.accept(sender)

    def fetch(self, reader: str, call: FetchCall) -> FetchAnswer | None:
        """The message asked for; None while it is not there."""
        self._check(reader, call)
        try:
            message = self._store.fetch(reader, call.kind, call.sender, call.about, call.piece)
        except OSError as error:
            raise _not_stored(error) from None
        if message is None:
            return None
        self._waits.pop(reader, None)
        return FetchAnswer(message)

    def waiting(self, reader: str, call: FetchCall) -> FetchAnswer:
        """What to answer while the message is not there: whose work it waits for, and who else is not here."""
        wanted = {*self._store.waits_for(reader, call.kind, call.sender, call.about), *self.presence.missing(reader)}
        names = self._waits[reader] = [party for party in self._parties if party in wanted]
        return FetchAnswer(waits_for=self.presence.waited_for(names))

    def _check(self, party: str, call: PostCall | FetchCall) -> None:
        self.presence.saw(party)
        try:
            check_same_run(party, call.protocol, call.run_hash, self._run_hash)
        except MessageRefused as refused:
            self.presence.refuse(party, str(refused))
            raise


def _not_stored(error: OSError) -> MessageRefused:
    """The party is not to blame and may try again."""
    return MessageRefused(
        f"the server cannot use its disk ({error.strerror or error}); make room at the server, then run the same "
        f"command again",
        Refusal.NOT_STORED,
    )
