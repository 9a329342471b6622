"""The server's session on a socket: one two-way gRPC stream per party, and short calls beside it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from cryptography import x509

from fdml.errors import MessageRefused, Refusal
from fdml.events import Listener
from fdml.protocol.identity import Credentials
from fdml.protocol.quoting import shown
from fdml.protocol.wire import encode_from_server
from fdml.server.session import Answer, Close, Commit, Effect, Emit, ServerSession, Stream
from fdml.settings import RunSettings
from fdml.transport.bulletin_calls import BulletinCalls
from fdml.transport.caller_certificates import CallerCertificates, shown_certificate
from fdml.transport.grpc_endpoint import PARTY_HEADER, STATUS_OF, flow_options, keepalive_options, size_options
from fdml.transport.pieces import Assembly, pieces
from fdml.transport.refusal_pace import RefusalPace
from fdml.transport.status_wire import encode_status

_MOST_UNREAD = 64
"""Messages of one stream that may wait to be acted on before it is read no further."""
_MOST_UNREAD_BYTES = 8 * 2**20
"""The same in bytes; a single message may be longer."""
_MOST_LINES = 8
"""Open streams of one party, as each broken one is noticed only after seconds; then the oldest is ended."""
_MOST_CALLS = 16
"""Streams and calls on one connection."""
_HANDSHAKE_MS = 5000
"""How long a connection may take to show a certificate. One that says nothing holds an open file as long."""
_ACKNOWLEDGE_SECONDS, _TICK_SECONDS = 0.2, 1.0
_BREAK_SECONDS = 0.05
"""Grace period before a half-closed stream counts as closed by the party: a broken one is cancelled within it."""
_FLUSH_SECONDS = 1.0
"""How long streams may take to end once the server ends."""
_LINGER_SECONDS = 15.0
"""How long a server whose run is over waits for parties that may not know yet that all is stored."""
_RETURN_SECONDS = 3.0
"""The same for a server that was started again after its run was over: parties reconnect within half a second."""
_LONGEST_REASON = 1000
"""Letters of a refusal on its way to who was refused."""

Context = Any


@dataclass(eq=False)
class _Line:
    """What the network adds to a stream."""

    stream: Stream
    certificate: x509.Certificate | None
    """What the party has shown; None on plain lines."""
    outgoing: asyncio.Queue[bytes | MessageRefused | None] = field(default_factory=asyncio.Queue)
    unread: int = 0
    """Messages that the session has not acted on yet."""
    unread_bytes: int = 0
    acted_on: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever the session has acted on all of them."""

    @property
    def is_full(self) -> bool:
        """Whether no more may be read before the session has acted on what is there."""
        return self.unread >= _MOST_UNREAD or self.unread_bytes >= _MOST_UNREAD_BYTES


class GrpcServer:
    """Carries bytes between gRPC and a server session."""

    def __init__(self, session: ServerSession, settings: RunSettings, *, plain: bool, on_event: Listener) -> None:
        self._session = session
        self._settings = settings
        self._plain = plain
        self._on_event = on_event
        self._lines: dict[Stream, _Line] = {}
        self._wake = asyncio.Event()
        self._linger_seconds = min(
            _RETURN_SECONDS if session.state.finished else _LINGER_SECONDS, settings.training.peer_timeout_seconds
        )
        self._callers = CallerCertificates(None, settings, on_event)
        self._bulletin = BulletinCalls(session, settings.parties)
        self._pace = RefusalPace(time.monotonic)

    async def run(self, address: str, credentials: Credentials | None, ready: Callable[[int], None]) -> None:
        """Serve until all parties have finished; `ready` is called with the port once it listens.

        Raises `PeerTimeout` if nobody has sent anything for too long, and what the disk raises.
        """
        before = asyncio.all_tasks()
        server = grpc.aio.server(
            options=[
                *keepalive_options(self._settings.training.peer_timeout_seconds),
                *flow_options(),
                *size_options(),
                ("grpc.so_reuseport", 0),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", _MOST_CALLS),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
                ("grpc.http2.min_ping_interval_without_data_ms", 500),
                ("grpc.http2.max_ping_strikes", 0),
            ]
        )
        handlers: dict[str, Any] = {
            "Join": grpc.stream_stream_rpc_method_handler(self._join),
            "Status": grpc.unary_unary_rpc_method_handler(self._status),
            "Post": grpc.stream_unary_rpc_method_handler(self._post),
            "Fetch": grpc.unary_stream_rpc_method_handler(self._fetch),
            "Alive": grpc.unary_unary_rpc_method_handler(self._alive),
            "Certificate": grpc.unary_unary_rpc_method_handler(self._certificate),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fdml.Exchange", handlers),))
        self._callers = CallerCertificates(credentials, self._settings, self._on_event)
        port = _listen(server, address, credentials)
        await server.start()
        ready(port)
        tasks = [asyncio.create_task(work) for work in (self._work(), self._tick(), self._acknowledge())]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:  # the timers end by an error only
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            for line in self._lines.values():
                line.outgoing.put_nowait(None)
            await server.stop(grace=_FLUSH_SECONDS)
            await _let_tasks_end(before)

    # Streams

    async def _join(self, requests: AsyncIterator[bytes], context: Context) -> None:
        line = _Line(Stream(await self._identify(context)), shown_certificate(context))
        self._make_room(line.stream.party)
        self._lines[line.stream] = line
        reader = asyncio.create_task(self._read(line, requests))
        try:
            while (item := await line.outgoing.get()) is not None:
                if isinstance(item, MessageRefused):
                    self._end(line, reader)  # nothing more is read while the answer is held back
                    await self._abort(context, item, line.stream.party)
                    return
                self._session.status.bytes_out[line.stream.party] += len(item)
                for piece in pieces(item):
                    await context.write(piece)
        finally:
            self._end(line, reader)

    def _end(self, line: _Line, reader: asyncio.Task[None]) -> None:
        reader.cancel()
        self._session.close(line.stream)
        self._lines.pop(line.stream, None)

    def _make_room(self, party: str) -> None:
        """End the oldest stream of a party that has too many; an honest one makes a new one."""
        if len(lines := [line for line in self._lines.values() if line.stream.party == party]) >= _MOST_LINES:
            lines[0].outgoing.put_nowait(None)

    async def _read(self, line: _Line, requests: AsyncIterator[bytes]) -> None:
        message = Assembly()
        async for piece in requests:
            size = message.size + len(piece)
            if size > line.stream.limit:
                await self._until_acted_on(line)  # the limit follows from what has come before
                try:
                    self._session.check_size(line.stream, size)
                except MessageRefused as refused:
                    self._carry_out(self._session.refuse(line.stream, refused))
                    return
            raw = message.add(piece)
            if raw is None:
                continue
            if line.is_full:
                await self._until_acted_on(line)
            line.unread += 1
            line.unread_bytes += len(raw)
            self._session.receive(line.stream, raw)
            self._wake.set()
        await asyncio.sleep(_BREAK_SECONDS)  # cancelled here, if the stream broke
        self._session.close(line.stream, by_party=True)
        line.outgoing.put_nowait(None)
        self._wake.set()

    async def _until_acted_on(self, line: _Line) -> None:
        while line.unread:
            line.acted_on.clear()
            await line.acted_on.wait()

    async def _work(self) -> None:
        while not self._session.state.finished:
            await self._wake.wait()
            self._wake.clear()
            self._process()
        await self._linger()

    async def _linger(self) -> None:
        """Let every party learn that all is stored, also one whose stream is broken just now."""
        deadline = time.monotonic() + self._linger_seconds
        while not self._session.all_departed and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._wake.wait()
            self._wake.clear()
            self._process()

    def _process(self) -> None:
        if not self._session.has_messages:
            return
        effects = self._session.process()
        for line in self._lines.values():
            line.unread = line.unread_bytes = 0
            line.acted_on.set()
        self._carry_out(effects)
        self._session.note_waits()

    def _carry_out(self, effects: list[Effect]) -> None:
        encoded: dict[int, bytes] = {}
        for effect in effects:
            match effect:
                case Commit():
                    self._session.state.commit()
                case Answer(stream, message):
                    if stream in self._lines:
                        key = id(message)  # the same total often goes to several parties
                        if key not in encoded:
                            encoded[key] = encode_from_server(message)
                        self._lines[stream].outgoing.put_nowait(encoded[key])
                case Close(stream, refused):
                    if stream in self._lines:
                        self._lines[stream].outgoing.put_nowait(refused)
                case Emit(event):
                    self._on_event(event)

    async def _acknowledge(self) -> None:
        while True:
            await asyncio.sleep(_ACKNOWLEDGE_SECONDS)
            self._carry_out(self._session.acknowledge())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._look_at_certificates()
            self._carry_out(self._session.tick())

    def _look_at_certificates(self) -> None:
        """End the streams of parties whose certificates have run out or were revoked since they came."""
        self._callers.look_at_own()
        for line in self._lines.values():
            try:
                self._callers.check(line.stream.party, line.certificate)
            except MessageRefused as refused:
                if not line.stream.refused:
                    self._carry_out(self._session.refuse(line.stream, refused))

    # Calls

    async def _identify(self, context: Context, *roles: str) -> str:
        """The caller's name from its certificate; on plain lines from a header, as there is nothing better."""
        try:
            if not self._plain:
                uris = [uri.decode(errors="replace") for uri in context.auth_context().get("peer_uri") or []]
                name = self._session.party_of(uris, *roles)
                self._callers.check(name, shown_certificate(context))
                return name
            name = _claimed(context)
            self._session.check_party(name)
            return name
        except MessageRefused as refused:
            await self._refuse(context, refused)
            return ""

    async def _refuse(self, context: Context, refused: MessageRefused, party: str = "") -> None:
        self._carry_out(self._session.refusal_events(refused, party))
        await self._abort(context, refused, party)

    async def _abort(self, context: Context, refused: MessageRefused, caller: str) -> None:
        await asyncio.sleep(self._pace.seconds(caller))
        await context.abort(STATUS_OF[refused.refusal], shown(str(refused), _LONGEST_REASON))

    async def _post(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        party = await self._identify(context)
        try:
            await self._bulletin.post(party, requests)
        except MessageRefused as refused:
            await self._refuse(context, refused, party)
        return b""

    async def _fetch(self, raw: bytes, context: Context) -> None:
        party = await self._identify(context)
        try:
            reply = await self._bulletin.fetch(party, raw)
        except MessageRefused as refused:
            await self._refuse(context, refused, party)
            return
        for piece in pieces(reply):
            await context.write(piece)

    async def _alive(self, raw: bytes, context: Context) -> bytes:
        party = await self._identify(context)
        await self._check_empty(raw, context, party)
        self._session.saw(party)
        return b""

    async def _certificate(self, raw: bytes, context: Context) -> bytes:
        """The server's own certificate: a party compares its key with run.toml before it sends anything else."""
        party = await self._identify(context, "server")
        await self._check_empty(raw, context, party)
        return self._callers.own

    async def _status(self, raw: bytes, context: Context) -> bytes:
        party = await self._identify(context, "server")
        await self._check_empty(raw, context, party)
        return encode_status(self._session.status.report(self._session.joined))

    async def _check_empty(self, raw: bytes, context: Context, party: str) -> None:
        """These calls carry nothing."""
        if raw:
            refused = MessageRefused(
                f"party {party!r} sent {len(raw)} bytes with a call that has none", Refusal.TOO_LARGE
            )
            await self._refuse(context, refused, party)


def _listen(server: Any, address: str, credentials: Credentials | None) -> int:
    if credentials is None:
        return int(server.add_insecure_port(address))
    ours = grpc.ssl_server_credentials(
        [(credentials.key, credentials.certificate)], credentials.authority, require_client_auth=True
    )
    return int(server.add_secure_port(address, ours))


async def _let_tasks_end(before: set[asyncio.Task[Any]]) -> None:
    """Let gRPC's own tasks end: cancelled, they would print where they were. Those of before wait for the server."""
    if rest := asyncio.all_tasks() - before:
        await asyncio.wait(rest, timeout=_FLUSH_SECONDS)


def _claimed(context: Context) -> str:
    """The party that a plain line names; empty if it names none."""
    try:
        return bytes.fromhex(dict(context.invocation_metadata()).get(PARTY_HEADER, "")).decode()
    except ValueError:
        return ""
