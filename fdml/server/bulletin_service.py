"""The counter in front of the board: takes postings, and waits with those who ask for what has not come."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from fdml.errors import MessageRefused
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.wire import invalid
from fdml.server.bulletin import BulletinStore
from fdml.server.membership import check_same_run

_LONGEST_WAIT = 1.0
"""Seconds after which whoever waits is told for whom."""
_HERE_SECONDS = 5.0
"""A party at work calls every second."""


class BulletinService:
    """Serves many askers of one board; a posting is stored in a thread, so that nobody else waits for the disk."""

    def __init__(self, board: BulletinStore, parties: Sequence[str], run_hash: bytes) -> None:
        self._board = board
        self._run_hash = run_hash
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        began = time.monotonic()
        self._seen = dict.fromkeys(parties, began)
        """When a party last showed that it is at work."""
        self._called: set[str] = set()
        self._digest: bytes | None = None
        self._troubles: dict[str, str] = {}
        """Why a party was last refused."""
        self._waits: dict[str, list[str]] = {}

    @property
    def digest(self) -> bytes | None:
        """The hash of the rows that the parties have found; None before they have."""
        if self._digest is None:
            self._digest = self._board.digest
        return self._digest

    def is_here(self, party: str) -> bool:
        """Whether a party has called just now."""
        return time.monotonic() - self._seen[party] < _HERE_SECONDS and party in self._called

    def waits_of(self, party: str) -> list[str]:
        """For whom a party has last been told to wait; empty if it has what it asked for, or is gone."""
        names = self._waits.get(party, [])
        return names if names and self.is_here(party) else []

    def saw(self, party: str) -> None:
        """A party has called."""
        self._seen[party] = time.monotonic()
        self._called.add(party)

    async def post(self, sender: str, raw: bytes) -> bytes:
        """Put a notice up; it is stored on return."""
        posting = pb.PostRequest()
        self._parse(sender, posting, raw)
        try:
            async with self._turn:
                await asyncio.to_thread(self._board.post, sender, posting.to, posting.about, posting.notice)
        except MessageRefused as refused:
            self._troubles[sender] = str(refused)
            raise
        self._troubles.pop(sender, None)
        self._news.set()
        self._news = asyncio.Event()
        return b""

    async def fetch(self, reader: str, raw: bytes) -> bytes:
        """What was asked for, or for whom it waits."""
        query = pb.FetchRequest()
        self._parse(reader, query, raw)
        news = self._news
        found = await self._look(reader, query)
        if found is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_WAIT):
                    await news.wait()
            found = await self._look(reader, query)
        if found is not None:
            self._waits.pop(reader, None)
            return pb.FetchReply(notice=found).SerializeToString()
        now = time.monotonic()
        names = self._waits[reader] = self._board.waits_for(reader, query.kind, query.sender, query.about)
        silent = [now - self._seen[name] for name in names]
        troubles = [self._troubles.get(name, "") for name in names]
        return pb.FetchReply(waits_for=names, silent_seconds=silent, troubles=troubles).SerializeToString()

    async def _look(self, reader: str, query: pb.FetchRequest) -> bytes | None:
        async with self._turn:
            return await asyncio.to_thread(self._board.fetch, reader, query.kind, query.sender, query.about)

    def _parse(self, party: str, message: pb.PostRequest | pb.FetchRequest, raw: bytes) -> None:
        self.saw(party)
        try:
            message.ParseFromString(raw)
        except DecodeError:
            raise invalid(f"{len(raw)} bytes that are no message of this protocol") from None
        if message.ByteSize() != len(raw) or len(UnknownFieldSet(message)):
            raise invalid("a call to the board with unknown fields or trailing bytes")
        try:
            check_same_run(party, message.protocol, message.run_hash, self._run_hash)
        except MessageRefused as refused:
            self._troubles[party] = str(refused)
            raise
