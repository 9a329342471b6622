"""The calls of the alignment at the server: their bytes in bounded pieces, the disk in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from fdml.protocol.alignment_calls import decode_fetch, decode_post, encode_answer
from fdml.protocol.envelopes import invalid
from fdml.protocol.limits import CALL
from fdml.server.session import ServerSession
from fdml.transport.pieces import Assembly, check_length

_LONGEST_FETCH = 1.0
"""Seconds after which a party that fetches is sent for whom it waits."""


class BulletinCalls:
    """Posts and fetches of all parties; what is refused raises `MessageRefused`."""

    def __init__(self, session: ServerSession, parties: Sequence[str]) -> None:
        self._session = session
        self._storing = asyncio.Lock()
        self._posted = asyncio.Event()
        self._posts = {party: asyncio.Lock() for party in parties}
        """A party has one message at a time on its way: no more of its bytes are held than of the largest."""

    async def post(self, party: str, requests: AsyncIterator[bytes]) -> None:
        """Store a message, in a thread, so that nobody else waits for the disk."""
        async with self._posts[party]:
            raw = await self._assembled(party, requests)
            self._note(party, raw)
            call = decode_post(raw)
            async with self._storing:
                await asyncio.to_thread(self._session.alignment.post, party, call)
        self._posted.set()
        self._posted = asyncio.Event()

    async def fetch(self, party: str, raw: bytes) -> bytes:
        """A message, or after a second for whom it waits."""
        check_length(len(raw), CALL, f"party {party!r}")
        self._note(party, raw)
        call = decode_fetch(raw)
        alignment, posted = self._session.alignment, self._posted
        async with self._storing:
            answer = await asyncio.to_thread(alignment.fetch, party, call)
        if answer is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_FETCH):
                    await posted.wait()
            async with self._storing:
                answer = await asyncio.to_thread(alignment.fetch, party, call)
        reply = encode_answer(answer or alignment.waiting(party, call))
        self._session.status.bytes_out[party] += len(reply)
        return reply

    async def _assembled(self, party: str, requests: AsyncIterator[bytes]) -> bytes:
        """The one message of a call."""
        most, message = self._session.alignment.largest_post(party) + CALL, Assembly()
        async for piece in requests:
            check_length(message.size + len(piece), most, f"party {party!r}")
            raw = message.add(piece)
            if raw is not None:
                return raw
        raise invalid("a call that ended before its last piece")

    def _note(self, party: str, raw: bytes) -> None:
        self._session.saw(party)
        self._session.status.bytes_in[party] += len(raw)
