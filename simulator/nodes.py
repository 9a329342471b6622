"""The processes of a run in virtual time. They drive the sessions that ship; only sockets and threads are virtual."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fdml.errors import InvariantBroken, MessageRefused
from fdml.events import Event, StepDone, Stopped
from fdml.party.channel import Incoming, ToServer
from fdml.party.delivery import Delivery
from fdml.party.disk_store import DiskStore
from fdml.party.driver import SessionDriver
from fdml.party.effects import PartyResult, WriteBundle
from fdml.party.session import PartySession
from fdml.privacy.statement import Statement
from fdml.protocol.alignment_calls import FetchCall, PostCall
from fdml.protocol.alignment_messages import AlignmentMessage, AlignmentRequest, Fetch, Post
from fdml.protocol.alignment_wire import decode_alignment
from fdml.protocol.messages import FromParty, FromServer, Hello
from fdml.protocol.wire import decode_from_party, decode_from_server, encode_from_party, encode_from_server
from fdml.server.alignment import AlignmentPhase
from fdml.server.bulletin import BulletinStore
from fdml.server.run_state import RunDefinition
from fdml.server.session import Answer, Close, Commit, Effect, Emit, ServerSession, Stream
from fdml.storage.arrays import hash_arrays
from simulator.clock import EventQueue
from simulator.disk import Crashed, VirtualDisk
from simulator.invariants import CheckedRunState, InvariantChecker
from simulator.links import Link
from simulator.scenarios import Scenario

_TRAVEL = 0.002
"""Virtual seconds that a message is on its way; the other durations are to be read beside it."""
_PROCESS, _ACKNOWLEDGE, _LEARN, _NOTICE, _RECONNECT = 0.0005, 0.02, 0.004, 0.02, 0.01
RESTART = 0.03
_PAUSES = 0.1
"""How often time passes between two effects of a party, so that it can be killed there."""


@dataclass
class Simulation:
    """What all processes of one seed share."""

    queue: EventQueue
    scenario: Scenario
    checker: InvariantChecker
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Call:
    """An alignment request with a number, so that its answer is known."""

    number: int
    request: AlignmentRequest


@dataclass(frozen=True)
class CallAnswer:
    """The answer to a call: a message, or None for a post."""

    number: int
    message: AlignmentMessage | None


@dataclass(frozen=True)
class LineEnd:
    """The end of a line."""

    refused: MessageRefused | None = None


Down = FromServer | CallAnswer | LineEnd


class Connection:
    """A line between a process of a party and one of the server, in order both ways until it breaks."""

    def __init__(self, queue: EventQueue, party: PartyNode, server: ServerNode) -> None:
        self.party = party
        self._queue = queue
        self._server = server
        travel = _TRAVEL * queue.random.choice((0.3, 1.0, 3.0))
        self.up: Link[bytes | Call] = Link(queue, travel, lambda item: server.receive(self, item))
        self.down: Link[Down] = Link(queue, travel, lambda item: party.receive(self, item))
        self.stream = Stream(party.name)
        self.server_start = 0
        """Which start of the server answered; 0 before any has."""
        self.ended = False
        """For the server."""
        self.heard: list[FromParty] = []
        """By the server."""
        self._broken = False

    def disconnect(self) -> None:
        """Lose some of what is on its way; each side notices in its own time."""
        if not self._broken:
            self._broken = True
            self.up.cut()
            self.down.cut()
            self._queue.after(self._queue.about(_NOTICE), lambda: self.party.receive(self, LineEnd()))
            self._queue.after(self._queue.about(5 * _NOTICE), lambda: self._server.close(self))


class SimulatedChannel:
    """One party's channel in virtual time."""

    def __init__(self, simulation: Simulation, party: PartyNode, server: ServerNode) -> None:
        self.connection: Connection | None = None
        self._simulation = simulation
        self._party = party
        self._server = server
        self._delivery: Delivery | None = None
        self._calls: dict[int, Call] = {}
        """Without an answer."""
        self._called = 0
        self._answers: deque[AlignmentMessage] = deque()

    @property
    def traffic(self) -> tuple[int, int]:
        """Not counted."""
        return 0, 0

    @property
    def has_message(self) -> bool:
        """Whether `poll` would give something."""
        return bool(self._answers) or (self._delivery is not None and self._delivery.has_message)

    @property
    def all_stored(self) -> bool:
        """Whether the server has stored everything that was sent."""
        return not self._calls and (self._delivery is None or self._delivery.all_stored)

    def send(self, message: ToServer) -> None:
        """Send a message."""
        match message:
            case Hello():
                self._delivery = Delivery(message)
                self._connect_again()
            case Post() | Fetch():
                self._called += 1
                call = self._calls[self._called] = Call(self._called, message)
                if self.connection is None:
                    self._connect_again()
                else:
                    self.connection.up.send(call)
            case _:
                self._send(message)

    def _send(self, message: FromParty) -> None:
        if self._delivery is None:
            raise InvariantBroken(f"{self._party.name} sent {type(message).__name__} before hello")
        raw = encode_from_party(message)
        self._simulation.queue.note(f"{self._party.name}: {_short(message)} {zlib.crc32(raw)}")
        self._simulation.checker.posted(self._party.name, message)
        self._delivery.enqueue(message)
        if self.connection is not None:
            self.connection.up.send(raw)

    def poll(self) -> Incoming | None:
        """The next message that has come, or None."""
        if self._answers:
            return self._answers.popleft()
        return None if self._delivery is None else self._delivery.poll()

    def unacknowledged(self) -> list[FromParty]:
        """Messages that the server may not have yet and that a restarted party would not make again."""
        return [] if self._delivery is None else self._delivery.unacknowledged

    def close(self) -> None:
        """End the line."""
        self.connection = None

    def receive(self, item: FromServer | CallAnswer) -> None:
        """Something has arrived on the present line."""
        if isinstance(item, CallAnswer):
            if self._calls.pop(item.number, None) is not None and item.message is not None:
                self._answers.append(item.message)
        elif self._delivery is not None:
            self._delivery.receive(item)

    def reconnect(self) -> None:
        """Open a new line where the last has ended."""
        if self.connection is None:
            self._connect_again()

    def _connect_again(self) -> None:
        self._simulation.counts["lines"] += 1
        self.connection = Connection(self._simulation.queue, self._party, self._server)
        for call in self._calls.values():
            self.connection.up.send(call)
        if self._delivery is not None:
            for message in self._delivery.connect():
                self.connection.up.send(encode_from_party(message))


class ServerNode:
    """The server's process, and its disk."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.disk = VirtualDisk(simulation.queue.random, torn=("snapshot",))
        self.starts = 0
        self.session: ServerSession | None = None
        """None while the process is down."""
        self._connections: dict[Stream, Connection] = {}
        self._fetches: list[tuple[Connection, int, FetchCall]] = []
        self._is_planned = self._acknowledgement_is_planned = False

    @property
    def state(self) -> CheckedRunState | None:
        """The run as the server has it; None while the process is down."""
        state = None if self.session is None else self.session.state
        return state if isinstance(state, CheckedRunState) else None

    def start(self) -> None:
        """Go on from what the disk holds."""
        scenario, queue = self._simulation.scenario, self._simulation.queue
        settings = scenario.settings
        self.starts += 1
        try:
            state = CheckedRunState.open(RunDefinition(settings, scenario.run_hash), self.disk, scenario.rotate_bytes)
            bulletin = BulletinStore.open(settings.parties, settings.align, self.disk)
        except Crashed:
            self.kill()
            return
        state.checker = self._simulation.checker
        state.checker.opened(state)
        alignment = AlignmentPhase(bulletin, settings.parties, scenario.run_hash, lambda: queue.now)
        self.session = ServerSession(state, alignment, settings, lambda: queue.now)
        queue.note(f"server starts, number {self.starts}")

    def kill(self) -> None:
        """Die, and be started again after a while."""
        queue = self._simulation.queue
        self._simulation.counts["server crashes"] += 1
        queue.note("server dies")
        self.session = None
        self._is_planned = self._acknowledgement_is_planned = False
        self.disk.disarm()
        for connection in self._connections.values():
            connection.disconnect()
        self._connections, self._fetches = {}, []
        queue.after(queue.about(RESTART), self.start)

    def receive(self, connection: Connection, item: bytes | Call) -> None:
        """A message arrives."""
        if connection.server_start not in (0, self.starts) or connection.ended:
            return
        if self.session is None:
            connection.disconnect()
            return
        if not connection.server_start:
            connection.server_start = self.starts
            self._connections[connection.stream] = connection
        self._simulation.counts["messages"] += 1
        if connection is not connection.party.connection:
            self._simulation.counts["late messages of given up lines"] += 1
        if isinstance(item, Call):
            self._answer(self.session, connection, item)
            return
        connection.heard.append(decode_from_party(item))
        self.session.receive(connection.stream, item)
        if not self._is_planned:
            self._is_planned = True
            self._later(_PROCESS, self._process)

    def _later(self, seconds: float, action: Callable[[ServerSession], None]) -> None:
        start, queue = self.starts, self._simulation.queue

        def act() -> None:
            if start == self.starts and self.session is not None:
                action(self.session)

        queue.after(queue.about(seconds), act)

    def _answer(self, session: ServerSession, connection: Connection, call: Call) -> None:
        """An alignment call: posts are stored at once, fetches wait until what they want is there."""
        party, run_hash = connection.party.name, self._simulation.scenario.run_hash
        if isinstance(call.request, Fetch):
            self._fetches.append((connection, call.number, FetchCall.of(call.request, run_hash)))
        else:
            try:
                session.alignment.post(party, PostCall.of(call.request, run_hash))
            except Crashed:
                self.kill()
                return
            except MessageRefused as refused:
                raise InvariantBroken(f"a post of {party} was refused: {refused}") from None
            connection.down.send(CallAnswer(call.number, None))
        self._answer_fetches(session)

    def _answer_fetches(self, session: ServerSession) -> None:
        waiting = []
        for connection, number, call in self._fetches:
            answer = session.alignment.fetch(connection.party.name, call)
            if answer is None:
                waiting.append((connection, number, call))
            else:
                connection.down.send(CallAnswer(number, decode_alignment(answer.message)))
        self._fetches = waiting

    def _process(self, session: ServerSession) -> None:
        self._is_planned = False
        self._carry_out(session, session.process())

    def _acknowledge(self, session: ServerSession) -> None:
        self._acknowledgement_is_planned = False
        self._carry_out(session, session.acknowledge())

    def _carry_out(self, session: ServerSession, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Commit():
                    try:
                        session.state.commit()
                    except Crashed:
                        self.kill()
                        return
                case Answer(stream, message):
                    self._send(stream, message)
                case Close(stream, refused):
                    connection = self._connections.get(stream)
                    if connection is not None:
                        self.close(connection)
                        connection.down.send(LineEnd(refused))
                case Emit():
                    pass
        if session.has_unacknowledged and not self._acknowledgement_is_planned:
            self._acknowledgement_is_planned = True
            self._later(_ACKNOWLEDGE, self._acknowledge)

    def _send(self, stream: Stream, message: FromServer) -> None:
        connection = self._connections.get(stream)
        if connection is None:
            return
        raw = encode_from_server(message)
        self._simulation.queue.note(f"server to {stream.party}: {_short(message)} {zlib.crc32(raw)}")
        self._simulation.checker.said(stream.party, connection.heard, message)
        connection.down.send(decode_from_server(raw))

    def close(self, connection: Connection) -> None:
        """Notice that a line has ended."""
        if self.session is not None and connection.server_start == self.starts and not connection.ended:
            connection.ended = True
            self._connections.pop(connection.stream, None)
            self._fetches = [each for each in self._fetches if each[0] is not connection]
            self.session.close(connection.stream)


class PartyNode(DiskStore):
    """One party's process, and its disk."""

    def __init__(self, simulation: Simulation, server: ServerNode, name: str) -> None:
        self.virtual_disk = VirtualDisk(simulation.queue.random, torn=("checkpoint",))
        super().__init__(self.virtual_disk, run_hash=simulation.scenario.run_hash, data="rows")
        self.name = name
        self.result: bytes | None = None
        """The hash of its model, once it is done."""
        self._simulation = simulation
        self._server = server
        self._channel: SimulatedChannel | None = None
        self._driver: SessionDriver[PartyResult] | None = None
        """None while the process is down."""
        self._is_busy = False

    @property
    def is_alive(self) -> bool:
        """Whether its process is there and has something to do."""
        return self._driver is not None

    @property
    def connection(self) -> Connection | None:
        """The present line."""
        return None if self._channel is None else self._channel.connection

    def start(self) -> None:
        """Go on from what the disk holds."""
        queue, scenario = self._simulation.queue, self._simulation.scenario
        self.result = None
        self._is_busy = False
        queue.note(f"{self.name} starts")
        try:
            saved = self.load()
            member = scenario.member(self.name, saved.incarnation, disk=self.virtual_disk, shared=self.shared_rows())
            session = PartySession(member, saved, lambda: queue.now)
            self._channel = SimulatedChannel(self._simulation, self, self._server)
            self._driver = SessionDriver(session.run(), session, self._channel, self, self._listen)
        except Crashed:
            self.kill()
            return
        self._go_on(self._driver)

    def kill(self) -> None:
        """Die, and be started again after a while."""
        queue = self._simulation.queue
        self._simulation.counts["party crashes"] += 1
        queue.note(f"{self.name} dies")
        self._driver = None
        self.virtual_disk.disarm()
        if self._channel is not None and self._channel.connection is not None:
            self._channel.connection.disconnect()
            self._channel.connection = None
        queue.after(queue.about(RESTART), self.start)

    def receive(self, connection: Connection, item: Down) -> None:
        """An answer arrives, or the end of the line."""
        if self._channel is None or self._driver is None or connection is not self._channel.connection:
            return
        if isinstance(item, LineEnd):
            if item.refused is not None:
                raise InvariantBroken(f"{self.name} was refused on its own line: {item.refused}")
            channel, queue = self._channel, self._simulation.queue
            channel.connection = None
            queue.after(queue.about(_RECONNECT), lambda: self._reconnect(channel))
            return
        self._channel.receive(item)
        if not self._is_busy:
            self._go_on(self._driver)

    def _reconnect(self, channel: SimulatedChannel) -> None:
        if channel is self._channel and self._driver is not None:
            channel.reconnect()

    def _go_on(self, driver: SessionDriver[PartyResult]) -> None:
        """Carry out effects until one has to wait; time passes before a message is used, and now and then between."""
        if driver is not self._driver:
            return
        self._is_busy = False
        queue = self._simulation.queue
        try:
            while not driver.has_ended and driver.is_ready:
                uses_message = driver.is_waiting
                driver.step()
                if uses_message or queue.random.random() < _PAUSES:
                    self._is_busy = True
                    queue.after(queue.about(_LEARN), lambda: self._go_on(driver))
                    return
        except Crashed:
            self.kill()
            return
        if driver.has_ended:
            self.result = driver.result.model_hash
            self._driver = None
            self._channel = None
            queue.note(f"{self.name} is done")

    def _listen(self, event: Event) -> None:
        match event:
            case StepDone():
                self._simulation.counts["steps"] += 1
            case Stopped(party, step):
                self._simulation.counts["parties that ended early"] += 1
                self._simulation.checker.learned(party, step - 1)

    def write_statement(self, statement: Statement) -> None:
        """A file more in the middle of which the disk may fail."""
        self.virtual_disk.replace("statement", statement.as_text().encode())

    def write_bundle(self, bundle: WriteBundle) -> Path | None:
        """A file more in the middle of which the disk may fail."""
        self.virtual_disk.replace("model", hash_arrays(bundle.parameters))
        return None


def _short(message: object) -> str:
    number = next((getattr(message, name) for name in ("step", "epoch", "count") if hasattr(message, name)), "")
    return f"{type(message).__name__} {number}"
