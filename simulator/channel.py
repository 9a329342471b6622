"""A party's channel in virtual time, and the lines it is made of."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Protocol

from fdml.errors import InvariantBroken, MessageRefused
from fdml.party.channel import Incoming, ToServer
from fdml.party.delivery import Delivery
from fdml.protocol.alignment_messages import AlignmentMessage, AlignmentRequest, Fetch, Post
from fdml.protocol.messages import FromParty, FromServer, Hello
from fdml.protocol.wire import encode_from_party
from fdml.server.session import Stream
from simulator.clock import EventQueue
from simulator.invariants import InvariantChecker
from simulator.links import Link
from simulator.scenarios import Scenario

_TRAVEL = 0.002
"""Virtual seconds that a message is on its way; the other durations are to be read beside it."""
_DETECT = 0.02
"""Virtual seconds until a party knows that its line is broken; the server takes longer."""


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


Up = bytes | Call
Down = FromServer | CallAnswer | LineEnd


class PartyEnd(Protocol):
    """The party's end of a line."""

    name: str

    @property
    def connection(self) -> Connection | None:
        """The line that the party uses now."""
        ...

    def receive(self, connection: Connection, item: Down) -> None:
        """Something arrives, or the line ends."""
        ...


class ServerEnd(Protocol):
    """The server's end of a line."""

    def receive(self, connection: Connection, item: Up) -> None:
        """Something arrives."""
        ...

    def close(self, connection: Connection) -> None:
        """Find that the line has ended."""
        ...


class Connection:
    """A line between a process of a party and one of the server, in order both ways until it breaks."""

    def __init__(self, queue: EventQueue, party: PartyEnd, server: ServerEnd) -> None:
        self.party = party
        self._queue = queue
        self._server = server
        travel = _TRAVEL * queue.random.choice((0.3, 1.0, 3.0))
        self.up: Link[Up] = Link(queue, travel, lambda item: server.receive(self, item))
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
        """Lose some of what is on its way; each side finds out in its own time."""
        if not self._broken:
            self._broken = True
            self.up.cut()
            self.down.cut()
            self._queue.after(self._queue.about(_DETECT), lambda: self.party.receive(self, LineEnd()))
            self._queue.after(self._queue.about(5 * _DETECT), lambda: self._server.close(self))


class SimulatedChannel:
    """One party's channel in virtual time."""

    def __init__(self, simulation: Simulation, party: PartyEnd, server: ServerEnd) -> None:
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
                self._delivery = Delivery(message, self._simulation.scenario.settings)
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
        self._simulation.queue.note(f"{self._party.name}: {short_name(message)} {zlib.crc32(raw)}")
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


def short_name(message: object) -> str:
    """A message in a line of the trace."""
    number = next((getattr(message, name) for name in ("step", "epoch", "count") if hasattr(message, name)), "")
    return f"{type(message).__name__} {number}"
