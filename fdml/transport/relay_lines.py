"""The streams of questions about predictions at the server, around its relay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from cryptography import x509

from fdml.errors import MessageRefused
from fdml.protocol.prediction_messages import MOST_MESSAGE, Question
from fdml.protocol.prediction_wire import decode_relayed, encode_relayed
from fdml.server.relay import Delivery, Relay, RelayLine
from fdml.transport.caller_certificates import CallerCertificates
from fdml.transport.grpc_incoming import Incoming
from fdml.transport.outgoing import Outgoing
from fdml.transport.pieces import Assembly, check_length, pieces

_MOST_LINES = 16
"""Open streams of one party; then the oldest is ended."""
_MOST_WAITING = 2 * MOST_MESSAGE
"""Bytes that wait for a stream to take them; what comes then is not delivered, or one party could fill the memory."""
_TICK_SECONDS = 1.0
"""How often the certificates of open streams are looked at."""


@dataclass(eq=False)
class _Stream:
    line: RelayLine
    incoming: Incoming
    outgoing: Outgoing = field(default_factory=Outgoing)
    waiting: int = 0
    """Bytes of the messages in it."""
    reader: asyncio.Task[None] | None = None
    watch: asyncio.Task[None] | None = None
    """Looks at the certificate."""


class RelayLines:
    """Carries bytes between streams and the relay."""

    def __init__(self, relay: Relay, callers: CallerCertificates) -> None:
        self.relay = relay
        self._callers = callers
        self._streams: dict[RelayLine, _Stream] = {}

    async def hold(
        self,
        line: RelayLine,
        certificate: x509.Certificate | None,
        requests: AsyncIterator[bytes],
        *,
        write: Callable[[bytes], Awaitable[None]],
        refuse: Callable[[MessageRefused], Awaitable[None]],
    ) -> None:
        """Hold one stream until either side ends it."""
        self._make_room(line.party)
        stream = self._streams[line] = _Stream(line, Incoming(requests))
        self._deliver(self.relay.open(line))
        stream.reader = asyncio.create_task(self._read(stream))
        stream.watch = asyncio.create_task(self._look(stream, certificate))
        try:
            while (item := await stream.outgoing.get()) is not None:
                if isinstance(item, MessageRefused):
                    self._end(stream)  # nothing more is read while the answer is held back
                    await refuse(item)
                    return
                for piece in pieces(item):
                    await write(piece)
                stream.waiting -= len(item)
        finally:
            self._end(stream)

    def _end(self, stream: _Stream) -> None:
        stream.incoming.end()
        if stream.watch is not None:
            stream.watch.cancel()
        if self._streams.pop(stream.line, None) is not None:
            self._deliver(self.relay.close(stream.line))

    def _make_room(self, party: str) -> None:
        own = [stream for line, stream in self._streams.items() if line.party == party]
        if len(own) >= _MOST_LINES:
            own[0].outgoing.put(None)

    async def _read(self, stream: _Stream) -> None:
        message = Assembly()
        try:
            async for piece in stream.incoming:
                check_length(message.size + len(piece), MOST_MESSAGE, f"party {stream.line.party!r}")
                raw = message.add(piece)
                if raw is not None:
                    self._deliver(self.relay.receive(stream.line, decode_relayed(raw)))
        except MessageRefused as refused:
            stream.outgoing.put(refused)
            return
        stream.outgoing.put(None)

    async def _look(self, stream: _Stream, certificate: x509.Certificate | None) -> None:
        """End the stream once its party's certificate has run out or was revoked."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                self._callers.check(stream.line.party, certificate)
            except MessageRefused as refused:
                stream.outgoing.put(refused)
                return

    def _deliver(self, deliveries: list[Delivery]) -> None:
        for line, message in deliveries:
            stream = self._streams.get(line)
            if stream is None:
                continue
            raw = encode_relayed(message)
            if stream.waiting + len(raw) <= _MOST_WAITING:
                stream.waiting += len(raw)
                stream.outgoing.put(raw)
            elif isinstance(message, Question):  # a reply that its asker does not take is left out
                self._deliver(self.relay.undelivered(line, message))
