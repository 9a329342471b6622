"""The host on a socket: one two-way gRPC stream per party.

Messages of all parties are taken in turns: whatever has come is acted on, the
log is made durable once, and only then are the answers sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from fdml.errors import MessageRefused, PeerTimeout, Refusal
from fdml.protocol.identity import Credentials, parse_identity
from fdml.protocol.messages import Ack, Finished, FromParty, FromServer, Hello, Labels, Reply, Waiting
from fdml.protocol.wire import decode_from_party, encode_from_server
from fdml.server.bulletin import BulletinStore
from fdml.server.bulletin_service import BulletinService
from fdml.server.limits import CEILING, HELLO, largest_message
from fdml.server.run_state import RunState
from fdml.server.status import StatusTracker
from fdml.settings import RunSettings, run_hash
from fdml.transport.grpc_channel import PARTY_HEADER, STATUS_OF, flow_options, keepalive_options

_MOST_UNREAD = 64
"""Messages of one line that may wait to be acted on before it is read no further."""
_MOST_UNTOLD = 16
"""Messages of one line that may be stored before its party is told so."""
_TELL_SECONDS = 0.2
_NOTICE_SECONDS = 1.0
_BREAK_SECONDS = 0.05
"""A broken line looks at first like a party that hangs up; gRPC cancels it within so long."""
_MOST_SAID = 100
"""Different refusals that are said aloud; all are counted."""
_FLUSH_SECONDS = 1.0
"""How long streams may take to end once the server ends."""
_FAREWELL_SECONDS = 15.0
"""How long a server whose run is over waits for parties that may not know yet that all is stored."""

Context = Any


@dataclass(eq=False)
class Stream:
    """One open stream of one party."""

    party: str
    outgoing: asyncio.Queue[bytes | MessageRefused | None] = field(default_factory=asyncio.Queue)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_UNREAD))
    hello: Hello | None = None
    """What the party said first; None until it has."""
    limit: int = HELLO
    """Bytes of the largest message it may send."""
    refused: bool = False
    """Something that came by it was refused, so nothing else is acted on."""
    broken: bool = False
    """It is no longer there."""
    taken: int = 0
    """How many messages of this line have been acted on."""
    told: int = 0
    """How many of them the party was told to be stored."""


class GrpcServer:
    """Carries messages between the streams of the parties and the host."""

    def __init__(
        self,
        host: RunState,
        board: BulletinStore,
        settings: RunSettings,
        *,
        plain: bool,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._host = host
        self._desk = BulletinService(board, settings.parties, run_hash(settings))
        self._settings = settings
        self._run_hash = run_hash(settings)
        self._plain = plain
        self._inbox: deque[tuple[Stream, bytes]] = deque()
        self._wake = asyncio.Event()
        self._open: set[Stream] = set()
        self._lines: dict[str, Stream] = {}
        """For every party the line on which it was last welcomed."""
        self._untold: dict[Stream, None] = {}
        self._standing = StatusTracker(host, self._desk, settings)
        self._departed: set[str] = set()
        """Parties that have finished and hung up, so know that all is stored."""
        self._heard_at = time.monotonic()
        self._say_aloud = say
        self._said: set[str] = set()

    @property
    def traffic(self) -> dict[str, tuple[int, int]]:
        """Bytes that came from each party and that went to it."""
        came, went = self._standing.bytes_in, self._standing.bytes_out
        return {party: (came[party], went[party]) for party in self._settings.parties}

    async def run(self, address: str, credentials: Credentials | None, ready: Callable[[int], None]) -> None:
        """Serve until all parties have finished; `ready` is called with the port once it listens."""
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
            "Post": grpc.unary_unary_rpc_method_handler(self._at_desk(self._desk.post)),
            "Fetch": grpc.unary_unary_rpc_method_handler(self._at_desk(self._desk.fetch)),
            "Alive": grpc.unary_unary_rpc_method_handler(self._alive),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fdml.Exchange", handlers),))
        port = _listen(server, address, credentials)
        await server.start()
        ready(port)
        clockwork = [asyncio.create_task(self._give_notices()), asyncio.create_task(self._tell())]
        try:
            await self._work()
        finally:
            for task in clockwork:
                task.cancel()
            for line in self._open:
                line.outgoing.put_nowait(None)
            await server.stop(grace=_FLUSH_SECONDS)
            await _settled()

    async def _join(self, requests: AsyncIterator[bytes], context: Context) -> None:
        line = Stream(await self._identify(context))
        self._open.add(line)
        reader = asyncio.create_task(self._read(line, requests))
        try:
            while (item := await line.outgoing.get()) is not None:
                if isinstance(item, MessageRefused):
                    await context.abort(STATUS_OF[item.refusal], str(item))
                    return
                self._standing.bytes_out[line.party] += len(item)
                await context.write(item)
        finally:
            reader.cancel()
            line.broken = True
            self._open.discard(line)
            if self._lines.get(line.party) is line:
                del self._lines[line.party]

    async def _identify(self, context: Context, *roles: str) -> str:
        """The party's name from its certificate; on plain lines from a header, as there is nothing better."""
        if self._plain:
            role, name = "party", _claimed(context)
        else:
            uris = [uri.decode(errors="replace") for uri in context.auth_context().get("peer_uri") or []]
            identity = next((found for uri in uris if (found := parse_identity(uri)) is not None), None)
            if identity is None or identity.run != self._settings.name or identity.role not in ("party", *roles):
                shown = ", ".join(uris) or "nobody"
                wanted = f"this is run {self._settings.name!r}, and only a party of it may join"
                await self._turn_away(context, f"the certificate names {shown}; {wanted}", Refusal.UNAUTHENTICATED)
                return ""
            role, name = identity.role, identity.name
        if role == "party" and name not in self._settings.parties:
            known = ", ".join(self._settings.parties)
            await self._turn_away(context, f"{name!r} is not a party of this run: {known}", Refusal.NOT_PERMITTED)
        return name

    async def _turn_away(self, context: Context, text: str, refusal: Refusal) -> None:
        self._note_refusal(text, refusal)
        await context.abort(STATUS_OF[refusal], text)

    def _note_refusal(self, text: str, refusal: Refusal) -> None:
        """Count it; and say it, but not the same again and again."""
        self._standing.refused[refusal.name.lower()] += 1
        if text not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(text)
            self._say_aloud(f"refused: {text}")

    async def _read(self, line: Stream, requests: AsyncIterator[bytes]) -> None:
        async for raw in requests:
            self._standing.bytes_in[line.party] += len(raw)
            await line.room.acquire()
            self._inbox.append((line, raw))
            self._wake.set()
        await asyncio.sleep(_BREAK_SECONDS)  # cancelled here, if the line broke
        if self._host.has_finished(line.party):
            self._departed.add(line.party)
        line.outgoing.put_nowait(None)
        self._wake.set()

    async def _work(self) -> None:
        while not self._host.finished:
            await self._wake.wait()
            self._wake.clear()
            if self._inbox:
                self._heard_at = time.monotonic()
                self._turn()
            elif self._seconds_of_silence() > 10 * self._settings.training.peer_timeout_seconds:
                missing = [name for name in self._settings.parties if not self._host.has_finished(name)]
                raise PeerTimeout(
                    f"no word from any party for {self._seconds_of_silence():.0f} s; {', '.join(missing)} have not "
                    f"finished; start the server again, then the parties, and the run goes on"
                )
        await self._say_farewell()

    def _seconds_of_silence(self) -> float:
        return time.monotonic() - self._heard_at

    async def _say_farewell(self) -> None:
        """Let every party learn that all is stored, also one whose line is broken just now."""
        deadline = time.monotonic() + min(_FAREWELL_SECONDS, self._settings.training.peer_timeout_seconds)
        while len(self._departed) < len(self._settings.parties) and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._wake.wait()
            self._wake.clear()
            self._turn()

    def _turn(self) -> None:
        """Act on all that has come; if anyone is to be told anything, make it durable first, then answer.

        A push that nobody can be served for yet may wait for the next one: the log
        is made durable about once per step, not once per push.
        """
        urgent = False
        replies: list[Reply] = []
        while self._inbox:
            line, raw = self._inbox.popleft()
            line.room.release()
            if line.refused:
                continue
            try:
                self._check_size(line, len(raw))
                message = decode_from_party(raw)
                self._check_line(line, message)
                replies += self._host.take(line.party, message, raw)
            except MessageRefused as refused:
                self._refuse(line, refused)
                continue
            if isinstance(message, Hello):
                self._put_in_place(line, message)
            line.taken += 1
            self._untold[line] = None
            urgent |= isinstance(message, (Hello, Labels, Finished)) or line.taken - line.told >= _MOST_UNTOLD
        if replies:
            self._answer(replies)
        if urgent:
            self._answer([])
        self._standing.note_waits(self._lines)

    def _answer(self, replies: list[Reply]) -> None:
        self._host.commit()
        encoded: dict[int, bytes] = {}
        for reply in replies:
            line = self._lines.get(reply.to)
            if line is not None:
                key = id(reply.message)
                if key not in encoded:
                    encoded[key] = encode_from_server(reply.message)
                line.outgoing.put_nowait(encoded[key])
        for line in self._untold:
            if line.taken - line.told >= _MOST_UNTOLD or not replies:
                self._say(line, Ack(line.taken))
                line.told = line.taken
        self._untold = {line: None for line in self._untold if line.told < line.taken}

    def _check_size(self, line: Stream, size: int) -> None:
        if size <= line.limit:
            return
        if line.hello is not None:
            line.limit = largest_message(self._settings.training, line.hello, self._host.width)
        if size > line.limit:
            raise MessageRefused(
                f"party {line.party!r} sent a message of {size} bytes; here the largest has {line.limit}",
                Refusal.TOO_LARGE,
            )

    def _check_line(self, line: Stream, message: FromParty) -> None:
        if line.hello is None:
            if not isinstance(message, Hello):
                raise MessageRefused(f"party {line.party!r} did not say hello first", Refusal.INVALID)
            self._check_position(line.party, message)
            self._check_alignment(line.party, message)
            return
        if line.hello.incarnation < self._host.incarnation(line.party):
            raise _replaced(line.party)
        if isinstance(message, Hello):
            raise MessageRefused(f"party {line.party!r} said hello twice on one line", Refusal.INVALID)

    def _check_position(self, party: str, hello: Hello) -> None:
        """Refuse a party whose state is from another life of this run than the server's."""
        if hello.run_hash != self._run_hash or hello.incarnation < self._host.incarnation(party):
            return  # the host will say what is wrong
        coordinator = self._host.coordinator
        served, kept = (-1, -1) if coordinator is None else (coordinator.served(party), coordinator.kept(party))
        remedy = "put back the newest state of both, or start over at every side with --fresh"
        if hello.done > served:
            raise MessageRefused(
                f"party {party!r} goes on at step {hello.done + 1}, but the server knows it only up to step {served}: "
                f"the server was started over or has lost its state; {remedy}",
                Refusal.MISMATCH,
            )
        if hello.done < kept:
            raise MessageRefused(
                f"party {party!r} goes on at step {hello.done + 1}, but had told the server that it has step {kept} "
                f"safe: it was started over or has lost its state; {remedy}",
                Refusal.MISMATCH,
            )

    def _check_alignment(self, party: str, hello: Hello) -> None:
        """Refuse a party whose rows were aligned over another board than this server's."""
        if hello.run_hash != self._run_hash or hello.alignment_hash == self._desk.digest:
            return
        found = "this server has seen no alignment" if self._desk.digest is None else "this server has seen another one"
        raise MessageRefused(
            f"party {party!r} comes with rows that were aligned before, but {found}: one of them was started over; "
            f"start over with --fresh at every side",
            Refusal.MISMATCH,
        )

    def _put_in_place(self, line: Stream, hello: Hello) -> None:
        """A new line takes the place of the party's older one."""
        older = self._lines.get(line.party)
        if older is not None and older.hello is not None:
            same = older.hello.incarnation == hello.incarnation
            older.outgoing.put_nowait(None if same else _replaced(line.party))
        line.hello = hello
        if not line.broken:
            self._lines[line.party] = line

    def _refuse(self, line: Stream, refused: MessageRefused) -> None:
        self._note_refusal(str(refused), refused.refusal)
        line.refused = True
        line.outgoing.put_nowait(refused)

    def _say(self, line: Stream, message: FromServer) -> None:
        line.outgoing.put_nowait(encode_from_server(message))

    async def _tell(self) -> None:
        """Store and acknowledge what no answer has carried along."""
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            if self._untold:
                self._answer([])

    async def _give_notices(self) -> None:
        while True:
            await asyncio.sleep(_NOTICE_SECONDS)
            self._wake.set()  # to look at how long nobody has said anything
            self._standing.note_waits(self._lines)
            for party, line in self._lines.items():
                if self._standing.is_waiting(party, self._lines):
                    self._say(line, Waiting(tuple(self._standing.waits_for(party))))

    def _at_desk(self, serve: Callable[[str, bytes], Awaitable[bytes]]) -> Callable[[bytes, Context], Awaitable[bytes]]:
        """A call to the board: who calls is known from the certificate, what is refused gets its status."""

        async def answer(raw: bytes, context: Context) -> bytes:
            party = await self._identify(context)
            self._heard_at = time.monotonic()
            self._standing.bytes_in[party] += len(raw)
            try:
                reply = await serve(party, raw)
            except MessageRefused as refused:
                await self._turn_away(context, str(refused), refused.refusal)
                return b""
            self._standing.bytes_out[party] += len(reply)
            return reply

        return answer

    async def _alive(self, _: bytes, context: Context) -> bytes:
        self._desk.saw(await self._identify(context))
        self._heard_at = time.monotonic()
        return b""

    async def _status(self, _: bytes, context: Context) -> bytes:
        await self._identify(context, "server")
        return self._standing.report(self._lines).SerializeToString()


def _listen(server: Any, address: str, credentials: Credentials | None) -> int:
    if credentials is None:
        return int(server.add_insecure_port(address))
    ours = grpc.ssl_server_credentials(
        [(credentials.key, credentials.certificate)], credentials.authority, require_client_auth=True
    )
    return int(server.add_secure_port(address, ours))


async def _settled() -> None:
    """Let gRPC's own tasks end by themselves; cancelled, they would print where they were."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    if rest:
        await asyncio.wait(rest, timeout=_FLUSH_SECONDS)


def _claimed(context: Context) -> str:
    """Whom a plain line says it comes from; empty if it says nothing that makes sense."""
    try:
        return bytes.fromhex(dict(context.invocation_metadata()).get(PARTY_HEADER, "")).decode()
    except ValueError:
        return ""


def _replaced(party: str) -> MessageRefused:
    return MessageRefused(f"party {party!r} was started again since; this older process ends here", Refusal.FENCED)
