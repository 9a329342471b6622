"""The lines of one run at its server: a stream per party and short calls, around the run's session."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from cryptography import x509

from fdml.errors import MessageRefused, PeerTimeout, Refusal
from fdml.events import Listener
from fdml.protocol.wire import encode_from_server
from fdml.server.session import Answer, Close, Commit, Effect, Emit, ServerSession, Stream
from fdml.settings import RunSettings
from fdml.transport.bulletin_calls import BulletinCalls
from fdml.transport.caller_certificates import CallerCertificates
from fdml.transport.first_ended import until_one_ends
from fdml.transport.grpc_incoming import Incoming
from fdml.transport.outgoing import Outgoing
from fdml.transport.pieces import Assembly, pieces

_MOST_UNREAD = 64
"""Messages of one stream that may wait to be acted on before it is read no further."""
_MOST_UNREAD_BYTES = 8 * 2**20
"""The same in bytes; a single message may be longer."""
_MOST_LINES = 8
"""Open streams of one party, as each broken one is noticed only after seconds; then the oldest is ended."""
_ACKNOWLEDGE_SECONDS, _TICK_SECONDS = 0.2, 1.0
_BREAK_SECONDS = 0.05
"""Grace period before a half-closed stream counts as closed by the party: a broken one is cancelled within it."""
_LINGER_SECONDS = 15.0
"""How long a run that is over stays open for parties that may not know yet that all is stored."""
_RETURN_SECONDS = 3.0
"""The same for a run that was over when it was opened: parties reconnect within half a second."""
_IDLE_SECONDS = 60.0
"""How long a run of a standing server stays open without a stream or call; the next one opens it again."""


@dataclass(eq=False)
class _Line:
    """What the network adds to a stream."""

    stream: Stream
    certificate: x509.Certificate | None
    """What the party has shown; None on plain lines."""
    incoming: Incoming
    outgoing: Outgoing = field(default_factory=Outgoing)
    unread: int = 0
    """Messages that the session has not acted on yet."""
    unread_bytes: int = 0
    reader: asyncio.Task[None] | None = None
    acted_on: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever the session has acted on all of them, and once the stream is over."""

    @property
    def is_full(self) -> bool:
        """Whether no more may be read before the session has acted on what is there."""
        return self.unread >= _MOST_UNREAD or self.unread_bytes >= _MOST_UNREAD_BYTES


class RunLines:
    """Carries bytes between the calls of one run and its session."""

    def __init__(
        self,
        session: ServerSession,
        settings: RunSettings,
        callers: CallerCertificates,
        on_event: Listener,
        *,
        standing: bool = False,
    ) -> None:
        """The lines of a `standing` server's run end when nobody uses them; others wait for the run's end."""
        self.session = session
        self.bulletin = BulletinCalls(session, settings.parties)
        self._callers = callers
        self._on_event = on_event
        self._standing = standing
        self._lines: dict[Stream, _Line] = {}
        self._wake = asyncio.Event()
        self._used_at = time.monotonic()
        self._calls = 0
        self._linger_seconds = min(
            _RETURN_SECONDS if session.state.finished else _LINGER_SECONDS, settings.training.peer_timeout_seconds
        )

    async def run(self, finished: Callable[[], None] = lambda: None) -> None:
        """Act on what comes until the run is over, or idle; `finished` is called once all parties have finished.

        Raises `PeerTimeout` if nobody has sent anything for too long, and what the disk raises.
        """
        works = [self._work(finished), self._tick(), self._acknowledge()]
        if self._standing:
            works.append(self._until_idle())
        await until_one_ends([asyncio.create_task(work) for work in works])

    def use(self) -> None:
        """Somebody calls: the run is not idle."""
        self._used_at = time.monotonic()

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """While somebody's call goes on the run is not idle."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self.use()

    def end(self, refused: MessageRefused | None = None) -> None:
        """End all streams."""
        for line in self._lines.values():
            line.outgoing.put(refused)

    # Streams

    async def join(
        self,
        party: str,
        certificate: x509.Certificate | None,
        requests: AsyncIterator[bytes],
        *,
        write: Callable[[bytes], Awaitable[None]],
        refuse: Callable[[MessageRefused], Awaitable[None]],
    ) -> None:
        """Hold one stream of a party until either side ends it."""
        line = _Line(Stream(party), certificate, Incoming(requests))
        self._make_room(party)
        self._lines[line.stream] = line
        line.reader = asyncio.create_task(self._read(line))
        try:
            while (item := await line.outgoing.get()) is not None:
                if isinstance(item, MessageRefused):
                    self._end(line)  # nothing more is read while the answer is held back
                    await refuse(item)
                    return
                self.session.status.bytes_out[party] += len(item)
                for piece in pieces(item):
                    await write(piece)
        finally:
            self._end(line)

    def _end(self, line: _Line) -> None:
        line.incoming.end()
        line.acted_on.set()
        self.session.close(line.stream)
        self._lines.pop(line.stream, None)

    def _make_room(self, party: str) -> None:
        """End the oldest stream of a party that has too many; an honest one makes a new one."""
        if len(lines := [line for line in self._lines.values() if line.stream.party == party]) >= _MOST_LINES:
            lines[0].outgoing.put(None)

    async def _read(self, line: _Line) -> None:
        message, incoming = Assembly(), line.incoming
        async for piece in incoming:
            size = message.size + len(piece)
            if size > line.stream.limit and not await self._may_come(line, size):
                return
            raw = message.add(piece)
            if raw is None:
                continue
            if line.is_full:
                await self._until_acted_on(line)
            if incoming.ended:
                return
            line.unread += 1
            line.unread_bytes += len(raw)
            self.session.receive(line.stream, raw)
            self._wake.set()
        if not incoming.ended:
            await asyncio.sleep(_BREAK_SECONDS)
        if incoming.ended:  # also one that broke
            return
        self.session.close(line.stream, by_party=True)
        line.outgoing.put(None)
        self._wake.set()

    async def _may_come(self, line: _Line, size: int) -> bool:
        """Whether a message may be so long, by what has come before; one that is too long is refused."""
        await self._until_acted_on(line)
        if line.incoming.ended:
            return False
        try:
            self.session.check_size(line.stream, size)
        except MessageRefused as refused:
            self.carry_out(self.session.refuse(line.stream, refused))
            return False
        return True

    async def _until_acted_on(self, line: _Line) -> None:
        while line.unread and not line.incoming.ended:
            line.acted_on.clear()
            await line.acted_on.wait()

    # Work

    async def _work(self, finished: Callable[[], None]) -> None:
        while not self.session.state.finished:
            await self._wake.wait()
            self._wake.clear()
            self._process()
        finished()
        await self._linger()

    async def _linger(self) -> None:
        """Let every party learn that all is stored, also one whose stream is broken just now."""
        deadline = time.monotonic() + self._linger_seconds
        while not self.session.all_departed and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._wake.wait()
            self._wake.clear()
            self._process()

    def _process(self) -> None:
        if not self.session.has_messages:
            return
        effects = self.session.process()
        for line in self._lines.values():
            line.unread = line.unread_bytes = 0
            line.acted_on.set()
        self.carry_out(effects)
        self.session.note_waits()

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the session asks for, in its order."""
        encoded: dict[int, bytes] = {}
        for effect in effects:
            match effect:
                case Commit():
                    self.session.state.commit()
                case Answer(stream, message):
                    if stream in self._lines:
                        key = id(message)  # the same total often goes to several parties
                        if key not in encoded:
                            encoded[key] = encode_from_server(message)
                        self._lines[stream].outgoing.put(encoded[key])
                case Close(stream, refused):
                    if stream in self._lines:
                        self._lines[stream].outgoing.put(refused)
                case Emit(event):
                    self._on_event(event)

    async def _acknowledge(self) -> None:
        while True:
            await asyncio.sleep(_ACKNOWLEDGE_SECONDS)
            self.carry_out(self.session.acknowledge())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._look_at_certificates()
            self.carry_out(self.session.tick())
            self.carry_out(self.session.progress())

    async def _until_idle(self) -> None:
        while self._calls or time.monotonic() - self._used_at < _IDLE_SECONDS:
            await asyncio.sleep(_TICK_SECONDS)

    def _look_at_certificates(self) -> None:
        """End the streams of parties whose certificates have run out or were revoked since they came."""
        for line in self._lines.values():
            try:
                self._callers.check(line.stream.party, line.certificate)
            except MessageRefused as refused:
                if not line.stream.refused:
                    self.carry_out(self.session.refuse(line.stream, refused))


def ended_by(error: BaseException) -> MessageRefused | None:
    """What parties are told whose run a standing server has closed because of an error; they may try again."""
    if isinstance(error, PeerTimeout):
        return None
    what = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return MessageRefused(
        f"the server has closed the run for now ({what}); see its log, then try again", Refusal.NOT_STORED
    )
