"""The host on a socket: one two-way gRPC stream per party.

Messages of all parties are taken in turns: whatever has come is acted on, the
log is made durable once, and only then are the answers sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc

from fdml.errors import MessageRefused, Refusal, WaitedTooLong
from fdml.exchange import wire_pb2 as pb
from fdml.exchange.certificates import Credentials, parse_identity
from fdml.exchange.grpc_line import ALIVE, PARTY_HEADER, STATUS_OF
from fdml.exchange.messages import Accepted, Finished, FromParty, FromServer, Hello, Labels, Reply, Waiting
from fdml.exchange.wire import decode_from_party, encode_from_server
from fdml.server.host import Host
from fdml.settings import RunSettings

_MOST_UNREAD = 64
"""Messages of one line that may wait to be acted on before it is read no further."""
_MOST_UNTOLD = 16
"""Messages of one line that may be stored before its party is told so."""
_TELL_SECONDS = 0.2
_NOTICE_SECONDS = 1.0
MESSAGE_LIMIT = 256 * 2**20
"""The largest message, in bytes, that is taken from a party."""

Context = Any


@dataclass(eq=False)
class Line:
    """One open stream of one party."""

    party: str
    outgoing: asyncio.Queue[bytes | MessageRefused | None] = field(default_factory=asyncio.Queue)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_UNREAD))
    incarnation: int | None = None
    """None until the party has said hello on this line."""
    taken: int = 0
    """How many messages of this line have been acted on."""
    told: int = 0
    """How many of them the party was told to be stored."""


@dataclass
class Waits:
    """How long a party has waited for others."""

    since: float | None = None
    total: float = 0.0

    def note(self, waiting: bool, now: float) -> None:
        """Take in whether the party waits now."""
        if waiting and self.since is None:
            self.since = now
        elif not waiting and self.since is not None:
            self.total += now - self.since
            self.since = None


class GrpcServer:
    """Carries messages between the streams of the parties and the host."""

    def __init__(self, host: Host, settings: RunSettings, *, plain: bool) -> None:
        self._host = host
        self._settings = settings
        self._plain = plain
        self._inbox: deque[tuple[Line, FromParty]] = deque()
        self._wake = asyncio.Event()
        self._lines: dict[str, Line] = {}
        self._untold: dict[Line, None] = {}
        self._waits = {party: Waits() for party in settings.parties}
        self._bytes_in: Counter[str] = Counter()
        self._bytes_out: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._last_word = time.monotonic()

    async def run(self, address: str, credentials: Credentials | None, ready: Callable[[int], None]) -> None:
        """Serve until all parties have finished; `ready` is called with the port once it listens."""
        server = grpc.aio.server(
            options=[
                *ALIVE,
                ("grpc.max_receive_message_length", MESSAGE_LIMIT),
                ("grpc.max_send_message_length", -1),
                ("grpc.http2.min_ping_interval_without_data_ms", 500),
                ("grpc.http2.max_ping_strikes", 0),
            ]
        )
        handlers: dict[str, Any] = {
            "Join": grpc.stream_stream_rpc_method_handler(self._join),
            "Status": grpc.unary_unary_rpc_method_handler(self._status),
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
            await server.stop(grace=2.0)

    async def _join(self, requests: AsyncIterator[bytes], context: Context) -> None:
        line = Line(await self._identify(context))
        reader = asyncio.create_task(self._read(line, requests))
        try:
            while (item := await line.outgoing.get()) is not None:
                if isinstance(item, MessageRefused):
                    await context.abort(STATUS_OF[item.refusal], str(item))
                    return
                self._bytes_out[line.party] += len(item)
                await context.write(item)
        finally:
            reader.cancel()
            if self._lines.get(line.party) is line:
                del self._lines[line.party]

    async def _identify(self, context: Context) -> str:
        """The party's name from its certificate; on plain lines from a header, as there is nothing better."""
        if self._plain:
            claimed = dict(context.invocation_metadata()).get(PARTY_HEADER, "")
            name = bytes.fromhex(claimed).decode() if claimed else ""
        else:
            uris = context.auth_context().get("peer_uri") or context.auth_context().get("x509_uri") or []
            identity = next((found for uri in uris if (found := parse_identity(uri.decode())) is not None), None)
            if identity is None or identity.run != self._settings.name or identity.role != "party":
                shown = ", ".join(uri.decode() for uri in uris) or "none"
                await self._turn_away(
                    context,
                    f"the certificate names {shown}; this is run {self._settings.name!r}",
                    Refusal.UNAUTHENTICATED,
                )
            name = "" if identity is None else identity.name
        if name not in self._settings.parties:
            await self._turn_away(context, f"{name!r} is not a party of this run", Refusal.NOT_PERMITTED)
        return name

    async def _turn_away(self, context: Context, text: str, refusal: Refusal) -> None:
        self._refused[refusal.name.lower()] += 1
        await context.abort(STATUS_OF[refusal], text)

    async def _read(self, line: Line, requests: AsyncIterator[bytes]) -> None:
        async for raw in requests:
            self._bytes_in[line.party] += len(raw)
            await line.room.acquire()
            try:
                message = decode_from_party(raw)
            except MessageRefused as refused:
                self._refuse(line, refused)
                return
            self._inbox.append((line, message))
            self._wake.set()
        line.outgoing.put_nowait(None)

    async def _work(self) -> None:
        silence = 10 * self._settings.training.patience
        while not self._host.finished:
            try:
                await asyncio.wait_for(self._wake.wait(), silence)
            except TimeoutError:
                missing = [name for name in self._settings.parties if not self._host.has_finished(name)]
                raise WaitedTooLong(
                    f"no word from any party for {silence:g} s; {', '.join(missing)} have not finished: "
                    f"start them again, then the server, and the run goes on"
                ) from None
            self._wake.clear()
            self._turn()
        for line in list(self._lines.values()):
            line.outgoing.put_nowait(None)
        await _settled([line.outgoing.empty for line in self._lines.values()])

    def _turn(self) -> None:
        """Act on all that has come; if anyone is to be told anything, make it durable first, then answer.

        A push that nobody can be served for yet may wait for the next one: the log
        is made durable about once per step, not once per push.
        """
        urgent = False
        replies: list[Reply] = []
        while self._inbox:
            line, message = self._inbox.popleft()
            line.room.release()
            try:
                self._check_line(line, message)
                replies += self._host.take(line.party, message)
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
        self._note_waits()

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
                self._say(line, Accepted(line.taken))
                line.told = line.taken
        self._untold = {line: None for line in self._untold if line.told < line.taken}

    def _check_line(self, line: Line, message: FromParty) -> None:
        if line.incarnation is None and not isinstance(message, Hello):
            raise MessageRefused(f"party {line.party!r} did not say hello first", Refusal.INVALID)
        if line.incarnation is not None and line.incarnation < self._host.incarnation(line.party):
            raise MessageRefused(
                f"party {line.party!r} was started again since; end this older process", Refusal.FENCED
            )
        if line.incarnation is not None and isinstance(message, Hello):
            raise MessageRefused(f"party {line.party!r} said hello twice on one line", Refusal.INVALID)

    def _put_in_place(self, line: Line, hello: Hello) -> None:
        """A new line takes the place of the party's older one."""
        older = self._lines.get(line.party)
        if older is not None:
            older.outgoing.put_nowait(
                MessageRefused(f"party {line.party!r} was started again since; end this older process", Refusal.FENCED)
                if older.incarnation != hello.incarnation
                else None
            )
        line.incarnation = hello.incarnation
        self._lines[line.party] = line

    def _refuse(self, line: Line, refused: MessageRefused) -> None:
        self._refused[refused.refusal.name.lower()] += 1
        line.outgoing.put_nowait(refused)

    def _say(self, line: Line, message: FromServer) -> None:
        line.outgoing.put_nowait(encode_from_server(message))

    def _note_waits(self) -> None:
        now = time.monotonic()
        for party, waits in self._waits.items():
            waits.note(self._is_waiting(party), now)

    def _is_waiting(self, party: str) -> bool:
        coordinator = self._host.coordinator
        return coordinator is not None and coordinator.served(party) < coordinator.pushed(party)

    async def _tell(self) -> None:
        """Store and acknowledge what no answer has carried along."""
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            if self._untold:
                self._answer([])

    async def _give_notices(self) -> None:
        while True:
            await asyncio.sleep(_NOTICE_SECONDS)
            for party, line in self._lines.items():
                if self._host.coordinator is None or self._is_waiting(party):
                    self._say(line, Waiting(tuple(self._host.waits_for(party))))

    async def _status(self, _: bytes, context: Context) -> bytes:
        await self._identify(context)
        now = time.monotonic()
        coordinator = self._host.coordinator
        status = pb.RunStatus(run=self._settings.name, steps=0 if coordinator is None else coordinator.schedule.steps)
        for party in self._settings.parties:
            waits = self._waits[party]
            waiting = 0.0 if waits.since is None else now - waits.since
            status.parties.add(
                name=party,
                connected=party in self._lines,
                pushed=-1 if coordinator is None else coordinator.pushed(party),
                served=-1 if coordinator is None else coordinator.served(party),
                waits_for=self._host.waits_for(party) if waiting else [],
                waiting_seconds=waiting,
                waited_seconds=waits.total + waiting,
                bytes_in=self._bytes_in[party],
                bytes_out=self._bytes_out[party],
                incarnation=self._host.incarnation(party),
                finished=self._host.has_finished(party),
            )
        for metrics in self._host.history.values():
            status.history.add(**vars(metrics))
        status.refused.update(self._refused)
        return status.SerializeToString()


def _listen(server: Any, address: str, credentials: Credentials | None) -> int:
    if credentials is None:
        return int(server.add_insecure_port(address))
    ours = grpc.ssl_server_credentials(
        [(credentials.key, credentials.certificate)], credentials.authority, require_client_auth=True
    )
    return int(server.add_secure_port(address, ours))


async def _settled(empty: Iterable[Callable[[], bool]]) -> None:
    """Give the streams a moment to send what is left."""
    for _ in range(40):
        if all(each() for each in empty):
            return
        await asyncio.sleep(0.05)
