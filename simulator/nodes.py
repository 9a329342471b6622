"""The two sides of the protocol as processes in a virtual world: production code, but for sockets and threads."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from fdml.errors import InvariantBroken, MessageRefused
from fdml.federation.join import hash_state
from fdml.party.checkpoint import CheckpointStore, SessionProgress
from fdml.party.delivery import Delivery
from fdml.party.loop import Worker
from fdml.privacy.guard import Guard
from fdml.protocol.fixed_point import decode
from fdml.protocol.messages import Checkpointed, Finished, FromParty, FromServer, HeldOutTotal, Hello, Metrics, Stopped
from fdml.protocol.wire import decode_from_party, decode_from_server, encode_from_party
from fdml.server.bulletin import BulletinStore
from fdml.server.run_state import RunDefinition
from fdml.transport.grpc_server import GrpcServer, Stream
from simulator.invariants import CheckedRunState, InvariantChecker
from simulator.scenarios import Scenario
from simulator.world import Crashed, EventQueue, Link, VirtualDisk

_TRAVEL = 0.002
"""Virtual seconds that a message is under way; the other durations are to be read beside it."""
_TURN, _TELL, _LEARN, _NOTICE, _RECONNECT = 0.0005, 0.02, 0.004, 0.02, 0.01
RESTART = 0.03

Work = Generator[float | None, None, None]
"""A process at work: it yields for how long it computes, or None to wait for news."""
Answer = FromServer | MessageRefused | None
"""None and a refusal end the line."""


@dataclass
class Simulation:
    """What all processes of one seed share."""

    agenda: EventQueue
    case: Scenario
    witness: InvariantChecker
    counts: Counter[str] = field(default_factory=Counter)


class Front(GrpcServer):
    """The production server without its sockets: who calls brings the messages and carries the answers."""

    def _check_alignment(self, party: str, hello: Hello) -> None:
        """Simulated runs begin after the alignment."""

    def bring(self, line: Stream, raw: bytes) -> None:
        """A message has come by a line."""
        self._inbox.append((line, raw))

    def turn(self) -> None:
        """Act on all that has come."""
        self._turn()

    @property
    def owes_word(self) -> bool:
        """Whether anyone is still to be told that a message was stored."""
        return bool(self._untold)

    def tell(self) -> None:
        """Store and acknowledge what no answer has carried along."""
        self._answer([])

    def hang_up(self, line: Stream) -> None:
        """A line has ended."""
        line.broken = True
        if self._lines.get(line.party) is line:
            del self._lines[line.party]


class Connection:
    """A line between a process of a party and one of the server, in order both ways until it breaks."""

    def __init__(self, agenda: EventQueue, party: PartyNode, server: ServerNode) -> None:
        self.party = party
        self._agenda = agenda
        self._server = server
        travel = _TRAVEL * agenda.random.choice((0.3, 1.0, 3.0))
        self.up: Link[bytes] = Link(agenda, travel, lambda raw: server.hear(self, raw))
        self.down: Link[Answer] = Link(agenda, travel, lambda answer: party.hear(self, answer))
        self.line = Stream(party.name)
        self.server_life = 0
        """Which start of the server answered; 0 before any has."""
        self.ended = False
        """For the server."""
        self.heard: list[FromParty] = []
        """By the server."""
        self._broken = False

    def disconnect(self) -> None:
        """Lose some of what is under way; each side notices in its own time."""
        if not self._broken:
            self._broken = True
            self.up.cut()
            self.down.cut()
            self._agenda.after(self._agenda.about(_NOTICE), lambda: self.party.hear(self, None))
            self._agenda.after(self._agenda.about(5 * _NOTICE), lambda: self._server.hang_up(self))


class ServerNode:
    """The server's process, and its disk."""

    def __init__(self, scene: Simulation) -> None:
        self._scene = scene
        self.disk = VirtualDisk(scene.agenda.random, torn=("snapshot",))
        self.life = 0
        self.host: CheckedRunState | None = None
        """None while the process is down."""
        self._connections: list[Connection] = []
        self._turn_planned = self._tell_planned = False

    def start(self) -> None:
        """Go on from what the disk holds."""
        case = self._scene.case
        self.life += 1
        try:
            host = CheckedRunState.open(RunDefinition(case.settings, case.run_hash), self.disk, case.rotate_bytes)
        except Crashed:
            self.kill()
            return
        host.witness = self._scene.witness
        host.witness.opened(host)
        self.host = host
        board = BulletinStore(case.settings.parties, case.settings.align, self.disk)
        self._front = Front(host, board, case.settings, plain=True)
        self._scene.agenda.note(f"server starts, number {self.life}")

    def kill(self) -> None:
        """Die, and be started again after a while."""
        self._scene.counts["server crashes"] += 1
        self._scene.agenda.note("server dies")
        self.host = None
        self._turn_planned = self._tell_planned = False
        self.disk.disarm()
        for connection in self._connections:
            connection.disconnect()
        self._connections = []
        self._scene.agenda.after(self._scene.agenda.about(RESTART), self.start)

    def hear(self, connection: Connection, raw: bytes) -> None:
        """A message arrives."""
        if connection.server_life not in (0, self.life) or connection.ended:
            return
        if self.host is None:
            connection.disconnect()
            return
        if not connection.server_life:
            connection.server_life = self.life
            self._connections.append(connection)
        self._scene.counts["messages"] += 1
        if connection is not connection.party.connection:
            self._scene.counts["late messages of given up lines"] += 1
        connection.heard.append(decode_from_party(raw))
        self._front.bring(connection.line, raw)
        if not self._turn_planned:
            self._turn_planned = True
            life = self.life
            self._scene.agenda.after(self._scene.agenda.about(_TURN), lambda: self._turn(life))

    def _turn(self, life: int) -> None:
        if life == self.life and self.host is not None:
            self._turn_planned = False
            self._act(self._front.turn)

    def _tell(self, life: int) -> None:
        if life == self.life and self.host is not None:
            self._tell_planned = False
            self._act(self._front.tell)

    def _act(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Crashed:
            self._send_answers()  # what was said before the crash may have been heard
            self.kill()
            return
        self._send_answers()
        if self._front.owes_word and not self._tell_planned:
            self._tell_planned = True
            life = self.life
            self._scene.agenda.after(self._scene.agenda.about(_TELL), lambda: self._tell(life))

    def hang_up(self, connection: Connection) -> None:
        """AlignmentMessage that a line has broken."""
        if self.host is not None and connection.server_life == self.life and not connection.ended:
            connection.ended = True
            self._connections.remove(connection)
            self._front.hang_up(connection.line)

    def _send_answers(self) -> None:
        for connection in list(self._connections):
            outgoing = connection.line.outgoing
            while not outgoing.empty() and not connection.ended:
                item = outgoing.get_nowait()
                answer = decode_from_server(item) if isinstance(item, bytes) else item
                checksum = zlib.crc32(item) if isinstance(item, bytes) else item
                self._scene.agenda.note(f"server to {connection.party.name}: {_short(answer)} {checksum}")
                if answer is None or isinstance(answer, MessageRefused):
                    self.hang_up(connection)
                else:
                    self._scene.witness.said(connection.party.name, connection.heard, answer)
                connection.down.send(answer)


class PartyNode:
    """One party's process, and its disk. It does what `fdml join` does."""

    def __init__(self, scene: Simulation, server: ServerNode, name: str) -> None:
        self.name = name
        self.disk = VirtualDisk(scene.agenda.random, torn=("checkpoint",))
        self.connection: Connection | None = None
        self.result: bytes | None = None
        """The hash of its model, once it is done."""
        self._scene = scene
        self._server = server
        self._work: Work | None = None
        """None while the process is down."""
        self._busy = False

    @property
    def _leads(self) -> bool:
        return self.name == self._scene.case.settings.label_party

    def start(self) -> None:
        """Go on from what the disk holds."""
        self.result = None
        self._busy = False
        self._work = self._take_part()
        self._scene.agenda.note(f"{self.name} starts")
        self._go_on(self._work)

    def kill(self) -> None:
        """Die, and be started again after a while."""
        self._scene.counts["party crashes"] += 1
        self._scene.agenda.note(f"{self.name} dies")
        self._work = None
        self.disk.disarm()
        if self.connection is not None:
            self.connection.disconnect()
            self.connection = None
        self._scene.agenda.after(self._scene.agenda.about(RESTART), self.start)

    @property
    def alive(self) -> bool:
        """Whether its process is there and has something to do."""
        return self._work is not None

    def hear(self, connection: Connection, answer: Answer) -> None:
        """An answer arrives, or the end of the line."""
        if connection is not self.connection or self._work is None:
            return
        if isinstance(answer, MessageRefused):
            raise InvariantBroken(f"{self.name} was refused on its own line: {answer}")
        if answer is None:
            self.connection = None
            work = self._work
            self._scene.agenda.after(self._scene.agenda.about(_RECONNECT), lambda: self._reconnect(work))
            return
        self._courier.hear(answer)
        if not self._busy:
            self._go_on(self._work)

    def _reconnect(self, work: Work) -> None:
        if work is self._work and self.connection is None:
            self._connect()

    def _connect(self) -> None:
        self._scene.counts["lines"] += 1
        self.connection = Connection(self._scene.agenda, self, self._server)
        for message in self._courier.connect():
            self.connection.up.send(encode_from_party(message))

    def _go_on(self, work: Work) -> None:
        if work is not self._work:
            return
        self._busy = False
        try:
            pause = next(work)
        except Crashed:
            self.kill()
        except StopIteration:
            self._work = None
            self.connection = None
            self._scene.agenda.note(f"{self.name} is done")
        else:
            if pause is not None:
                self._busy = True
                self._scene.agenda.after(pause, lambda: self._go_on(work))

    def _post(self, message: FromParty) -> None:
        raw = encode_from_party(message)
        self._scene.agenda.note(f"{self.name}: {_short(message)} {zlib.crc32(raw)}")
        self._scene.witness.posted(self.name, message)
        self._courier.post(message)
        if self.connection is not None:
            self.connection.up.send(raw)

    def _take_part(self) -> Work:
        case, agenda = self._scene.case, self._scene.agenda
        keeper = CheckpointStore(
            self.disk,
            {"run.toml": case.run_hash.hex()},
            case.settings.training.checkpoint_seconds,
            clock=lambda: agenda.now,
        )
        diary = SessionProgress()
        saved = keeper.load(diary)
        done = -1 if saved is None else int(saved["position"][0]) - 1
        incarnation = keeper.next_incarnation()
        self._courier = Delivery(Hello(case.run_hash, bytes(32), case.rows, case.held_out, incarnation, done))
        self._connect()
        result = keeper.result()
        if result is None:
            if self._leads:
                self._post(case.labels)
            while not self._leads and self._courier.labels is None:
                yield None
            guard = case.guard(self.name, incarnation, self.disk)
            worker = case.worker(self.name, self._courier.labels or case.labels, guard)
            worker.restore(saved)
            agenda.note(f"{self.name} goes on at step {worker.step}")
            yield from self._train(worker, guard, keeper, diary)
            yield from self._flush()
            result = hash_state(worker.parameters())
            keeper.note_result(result)
        self._post(Finished(result))
        yield from self._flush()
        self.result = result

    def _flush(self) -> Work:
        while not self._courier.all_stored:
            yield None

    def _train(self, worker: Worker, guard: Guard, keeper: CheckpointStore, diary: SessionProgress) -> Work:
        kept = -1
        for letter in diary.unacknowledged:
            self._post(letter)
        for message in worker.first_messages():
            self._post(message)
        while not worker.finished:
            while (answer := self._courier.take(worker.step)) is None:
                yield None
            if isinstance(answer, Stopped):
                worker.stop_at(answer.step)
            else:
                yield self._scene.agenda.about(_LEARN)
                for message in worker.learn(answer):
                    self._post(message)
                self._scene.counts["steps"] += 1
                if worker.ended_epoch:
                    self._try_out(worker, guard, diary)
            diary.unacknowledged = self._courier.unacknowledged
            safe = keeper.after_step(worker, diary)
            guard.forget(safe)
            if safe > kept:
                kept = safe
                self._post(Checkpointed(safe))
        if worker.ended_early:
            self._scene.counts["parties that ended early"] += 1
            self._scene.witness.learned(self.name, worker.step - 1)
        for epoch in sorted(diary.pending):
            while not self._courier.is_settled(epoch, self._scene.case.schedule.blocks):
                yield None
            verdict = self._courier.verdicts.pop(epoch, None)
            self._judge([] if verdict is None else [verdict], guard, diary)

    def _try_out(self, worker: Worker, guard: Guard, diary: SessionProgress) -> None:
        self._post(guard.trial(worker.epoch, worker.predict_held_out()))
        if self._leads:
            diary.pending[worker.epoch] = (self._scene.agenda.now, worker.loss_sum)
            self._judge(self._courier.take_verdicts(diary.pending), guard, diary)

    def _judge(self, verdicts: list[HeldOutTotal], guard: Guard, diary: SessionProgress) -> None:
        for verdict in verdicts:
            seconds, loss = diary.pending.pop(verdict.epoch)
            found = float(decode(guard.open_held_out(verdict)).sum())
            self._post(Metrics(verdict.epoch, seconds, loss, found, 0.0))


def _short(message: object) -> str:
    number = next((getattr(message, name) for name in ("step", "epoch", "count") if hasattr(message, name)), "")
    return f"{type(message).__name__} {number}"
