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

from fdml.errors import MessageRefused
from fdml.events import Listener
from fdml.protocol.alignment_calls import decode_fetch, decode_post, encode_answer
from fdml.protocol.identity import Credentials
from fdml.protocol.wire import encode_from_server
from fdml.server.limits import CEILING
from fdml.server.session import Answer, Close, Commit, Effect, Emit, ServerSession, Stream
from fdml.settings import RunSettings
from fdml.transport.caller_certificates import CallerCertificates, shown_certificate
from fdml.transport.grpc_endpoint import PARTY_HEADER, STATUS_OF, flow_options, keepalive_options
from fdml.transport.status_wire import encode_status

_MOST_UNREAD = 64
"""Messages of one stream that may wait to be acted on before it is read no further."""
_ACKNOWLEDGE_SECONDS = 0.2
_TICK_SECONDS = 1.0
_LONGEST_FETCH = 1.0
"""Seconds after which a party that fetches is sent for whom it waits."""
_BREAK_SECONDS = 0.05
"""Grace period before a half-closed stream counts as closed by the party: a broken one is cancelled within it."""
_FLUSH_SECONDS = 1.0
"""How long streams may take to end once the server ends."""
_LINGER_SECONDS = 15.0
"""How long a server whose run is over waits for parties that may not know yet that all is stored."""

_RETURN_SECONDS = 3.0
"""The same for a server that was started again after its run was over: parties reconnect within half a second."""

Context = Any


@dataclass(eq=False)
class _Line:
    """What the network adds to a stream."""

    stream: Stream
    certificate: x509.Certificate | None
    """What the party has shown; None on plain lines."""
    outgoing: asyncio.Queue[bytes | MessageRefused | None] = field(default_factory=asyncio.Queue)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_UNREAD))
    unread: int = 0
    """Messages that the session has not acted on yet."""


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
        self._posting = asyncio.Lock()
        self._posted = asyncio.Event()

    async def run(self, address: str, credentials: Credentials | None, ready: Callable[[int], None]) -> None:
        """Serve until all parties have finished; `ready` is called with the port once it listens.

        Raises `PeerTimeout` if nobody has sent anything for too long, and what the disk raises.
        """
        server = grpc.aio.server(
            options=[
                *keepalive_options(self._settings.training.peer_timeout_seconds),
                *flow_options(),
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", CEILING),
                ("grpc.max_send_message_length", -1),
                ("grpc.http2.min_ping_interval_without_data_ms", 500),
                ("grpc.http2.max_ping_strikes", 0),
            ]
        )
        handlers: dict[str, Any] = {
            "Join": grpc.stream_stream_rpc_method_handler(self._join),
            "Status": grpc.unary_unary_rpc_method_handler(self._status),
            "Post": grpc.unary_unary_rpc_method_handler(self._post),
            "Fetch": grpc.unary_unary_rpc_method_handler(self._fetch),
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
            await _let_tasks_end()

    # Streams

    async def _join(self, requests: AsyncIterator[bytes], context: Context) -> None:
        line = _Line(Stream(await self._identify(context)), shown_certificate(context))
        self._lines[line.stream] = line
        reader = asyncio.create_task(self._read(line, requests))
        try:
            while (item := await line.outgoing.get()) is not None:
                if isinstance(item, MessageRefused):
                    await context.abort(STATUS_OF[item.refusal], str(item))
                    return
                self._session.status.bytes_out[line.stream.party] += len(item)
                await context.write(item)
        finally:
            reader.cancel()
            self._session.close(line.stream)
            del self._lines[line.stream]

    async def _read(self, line: _Line, requests: AsyncIterator[bytes]) -> None:
        async for raw in requests:
            await line.room.acquire()
            line.unread += 1
            self._session.receive(line.stream, raw)
            self._wake.set()
        await asyncio.sleep(_BREAK_SECONDS)  # cancelled here, if the stream broke
        self._session.close(line.stream, by_party=True)
        line.outgoing.put_nowait(None)
        self._wake.set()

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
            for _ in range(line.unread):
                line.room.release()
            line.unread = 0
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
                    line.stream.refused = True
                    self._carry_out(
                        [*self._session.refusal_events(refused, line.stream.party), Close(line.stream, refused)]
                    )

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
        await context.abort(STATUS_OF[refused.refusal], str(refused))

    async def _post(self, raw: bytes, context: Context) -> bytes:
        """Store an alignment message, in a thread, so that nobody else waits for the disk."""
        party = await self._called(raw, context)
        try:
            call = decode_post(raw)
            async with self._posting:
                await asyncio.to_thread(self._session.alignment.post, party, call)
        except MessageRefused as refused:
            await self._refuse(context, refused, party)
            return b""
        self._posted.set()
        self._posted = asyncio.Event()
        return b""

    async def _fetch(self, raw: bytes, context: Context) -> bytes:
        """Give an alignment message, or after a second for whom it waits."""
        party = await self._called(raw, context)
        try:
            call = decode_fetch(raw)
            alignment, posted = self._session.alignment, self._posted
            async with self._posting:
                answer = await asyncio.to_thread(alignment.fetch, party, call)
            if answer is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LONGEST_FETCH):
                        await posted.wait()
                async with self._posting:
                    answer = await asyncio.to_thread(alignment.fetch, party, call)
            reply = encode_answer(answer or alignment.waiting(party, call))
        except MessageRefused as refused:
            await self._refuse(context, refused, party)
            return b""
        self._session.status.bytes_out[party] += len(reply)
        return reply

    async def _called(self, raw: bytes, context: Context) -> str:
        party = await self._identify(context)
        self._session.saw(party)
        self._session.status.bytes_in[party] += len(raw)
        return party

    async def _alive(self, _: bytes, context: Context) -> bytes:
        self._session.saw(await self._identify(context))
        return b""

    async def _certificate(self, _: bytes, context: Context) -> bytes:
        """The server's own certificate: a party compares its key with run.toml before it sends anything else."""
        await self._identify(context, "server")
        return self._callers.own

    async def _status(self, _: bytes, context: Context) -> bytes:
        await self._identify(context, "server")
        return encode_status(self._session.status.report(self._session.joined))


def _listen(server: Any, address: str, credentials: Credentials | None) -> int:
    if credentials is None:
        return int(server.add_insecure_port(address))
    ours = grpc.ssl_server_credentials(
        [(credentials.key, credentials.certificate)], credentials.authority, require_client_auth=True
    )
    return int(server.add_secure_port(address, ours))


async def _let_tasks_end() -> None:
    """Let gRPC's own tasks end by themselves; cancelled, they would print where they were."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    if rest:
        await asyncio.wait(rest, timeout=_FLUSH_SECONDS)


def _claimed(context: Context) -> str:
    """The party that a plain line names; empty if it names none."""
    try:
        return bytes.fromhex(dict(context.invocation_metadata()).get(PARTY_HEADER, "")).decode()
    except ValueError:
        return ""
