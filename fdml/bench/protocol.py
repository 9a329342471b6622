"""Does the protocol keep its promises whatever happens? One seed is one run in a world that goes wrong.

The production server (all but its sockets), courier, worker, outbox and keeper
run in virtual time. Lines break with messages under way and may bring the rest
long after a newer line was opened; disks die in the middle of a write; server
and parties are killed and started again. A witness checks what must hold.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from fdml.bench.machine import commit, machine
from fdml.bench.measure import Progress, Report
from fdml.bench.toy import Case
from fdml.bench.witness import WatchedHost, Witness
from fdml.bench.world import Agenda, Crashed, Pipe, VirtualDisk
from fdml.data.generations import Generations
from fdml.errors import CheckFailed, FdmlError, MessageRefused, StateDamaged
from fdml.exchange.courier import Courier
from fdml.exchange.fixed_point import decode
from fdml.exchange.messages import (
    Finished,
    FromParty,
    FromServer,
    Hello,
    Kept,
    Labels,
    Metrics,
    Push,
    Trial,
    Verdict,
)
from fdml.exchange.wire import decode_from_party, decode_from_server, encode_from_party
from fdml.party.loop import Worker
from fdml.run.join import hash_state
from fdml.run.keeping import Diary, Keeper
from fdml.server.grpc_server import GrpcServer, Line
from fdml.server.host import Charter
from fdml.settings import run_hash

_TRAVEL = 0.002
"""Virtual seconds that a message is under way; the other durations are to be read beside it."""
_TURN, _LEARN, _RECONNECT, _RESTART, _NOTICE, _CALM = 0.0005, 0.004, 0.01, 0.03, 0.02, 0.02
_MOST_FAULTS = 8
_MOST_EVENTS = 20_000
_TAIL = 60
_TWICE_EVERY, _TELL_EVERY = 10, 500
_BUGS = (FdmlError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a wrong program raises."""

Waiting = Generator[float | None, None, None]
"""A process at work: it yields for how long it computes, or None to wait for news."""
Answer = FromServer | MessageRefused | None


class Front(GrpcServer):
    """The production server without its sockets: who calls brings the messages and carries the answers."""

    def bring(self, line: Line, message: FromParty) -> None:
        """A message has come by a line."""
        self._inbox.append((line, message))

    def turn(self) -> None:
        """Act on all that has come."""
        self._turn()

    def hang_up(self, line: Line) -> None:
        """A line has ended."""
        if self._lines.get(line.party) is line:
            del self._lines[line.party]


class Connection:
    """A line between a process of a party and one of the server, in order both ways until it breaks."""

    def __init__(self, world: World, party: PartySide) -> None:
        self._world = world
        self.party = party
        travel = _TRAVEL * world.agenda.random.choice((0.3, 1.0, 3.0))
        self.up: Pipe[bytes] = Pipe(world.agenda, travel, lambda raw: world.server.hear(self, raw))
        self.down: Pipe[Answer] = Pipe(world.agenda, travel, lambda answer: party.hear(self, answer))
        self.line = Line(party.name)
        self.server_life = 0
        """Which start of the server answered; 0 before any has."""
        self.ended = False
        """For the server."""
        self.heard: list[FromParty] = []
        """By the server."""
        self._broken = False

    def break_off(self) -> None:
        """Lose some of what is under way; each side notices in its own time."""
        if not self._broken:
            self._broken = True
            self.up.cut()
            self.down.cut()
            self._world.agenda.after(self._world.agenda.about(_NOTICE), lambda: self.party.hear(self, None))
            self._world.agenda.after(5 * self._world.agenda.about(_NOTICE), lambda: self._world.server.hang_up(self))


class ServerSide:
    """The server's process, and its disk."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.disk = VirtualDisk(world.agenda.random, torn=("snapshot",))
        self.life = 0
        self.host: WatchedHost | None = None
        """None while the process is down."""
        self._connections: list[Connection] = []
        self._turn_planned = False

    def start(self) -> None:
        """Go on from what the disk holds."""
        case = self._world.case
        self.life += 1
        try:
            host = WatchedHost.open(Charter(case.settings, case.run_hash), self.disk, case.rotate_bytes)
        except Crashed:
            self.kill()
            return
        assert isinstance(host, WatchedHost)
        host.witness = self._world.witness
        host.witness.opened(host)
        self.host = host
        self._front = Front(host, case.settings, plain=True)
        self._world.agenda.note(f"server starts, number {self.life}")

    def kill(self) -> None:
        """Die, and be started again after a while."""
        self._world.count("server crashes")
        self._world.agenda.note("server dies")
        self.host = None
        self._turn_planned = False
        self.disk.disarm()
        for connection in self._connections:
            connection.break_off()
        self._connections = []
        self._world.agenda.after(self._world.agenda.about(_RESTART), self.start)

    def hear(self, connection: Connection, raw: bytes) -> None:
        """A message arrives."""
        if connection.server_life not in (0, self.life) or connection.ended:
            return
        if self.host is None:
            connection.break_off()
            return
        if not connection.server_life:
            connection.server_life = self.life
            self._connections.append(connection)
        message = decode_from_party(raw)
        self._world.count("messages")
        if connection is not connection.party.connection:
            self._world.count("late messages of given up lines")
        connection.heard.append(message)
        self._front.bring(connection.line, message)
        if not self._turn_planned:
            self._turn_planned = True
            life = self.life
            self._world.agenda.after(self._world.agenda.about(_TURN), lambda: self._turn(life))

    def hang_up(self, connection: Connection) -> None:
        """Notice that a line has broken."""
        if self.host is not None and connection.server_life == self.life and not connection.ended:
            connection.ended = True
            self._connections.remove(connection)
            self._front.hang_up(connection.line)

    def _turn(self, life: int) -> None:
        if life != self.life or self.host is None:
            return
        self._turn_planned = False
        try:
            self._front.turn()
        except Crashed:
            self._send_answers()
            self.kill()
        else:
            self._send_answers()

    def _send_answers(self) -> None:
        for connection in list(self._connections):
            outgoing = connection.line.outgoing
            while not outgoing.empty() and not connection.ended:
                item = outgoing.get_nowait()
                answer = decode_from_server(item) if isinstance(item, bytes) else item
                checksum = zlib.crc32(item) if isinstance(item, bytes) else item
                self._world.agenda.note(f"server to {connection.party.name}: {_short(answer)} {checksum}")
                if answer is None or isinstance(answer, MessageRefused):
                    self.hang_up(connection)
                else:
                    self._world.witness.said(connection.party.name, connection.heard, answer)
                connection.down.send(answer)


class PartySide:
    """One party's process, and its disk. It does what `fdml join` does."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.disk = VirtualDisk(world.agenda.random, torn=("checkpoint",))
        self.connection: Connection | None = None
        self.result: bytes | None = None
        """The hash of its model, once it is done."""
        self._world = world
        self._work: Waiting | None = None
        """None while the process is down."""
        self._busy = False

    @property
    def _leads(self) -> bool:
        return self.name == self._world.case.settings.label_party

    def start(self) -> None:
        """Go on from what the disk holds."""
        self.result = None
        self._busy = False
        self._work = self._take_part()
        self._world.agenda.note(f"{self.name} starts")
        self._go_on(self._work)

    def kill(self) -> None:
        """Die, and be started again after a while."""
        self._world.count("party crashes")
        self._world.agenda.note(f"{self.name} dies")
        self._work = None
        self.disk.disarm()
        if self.connection is not None:
            self.connection.break_off()
            self.connection = None
        self._world.agenda.after(self._world.agenda.about(_RESTART), self.start)

    @property
    def alive(self) -> bool:
        """Whether its process is there and has something to do."""
        return self._work is not None

    def hear(self, connection: Connection, answer: Answer) -> None:
        """An answer arrives, or the end of the line."""
        if connection is not self.connection or self._work is None:
            return
        if isinstance(answer, MessageRefused):
            raise CheckFailed(f"{self.name} was refused on its own line: {answer}")
        if answer is None:
            self.connection = None
            work = self._work
            self._world.agenda.after(self._world.agenda.about(_RECONNECT), lambda: self._connect(work))
            return
        self._courier.hear(answer)
        if not self._busy:
            self._go_on(self._work)

    def _connect(self, work: Waiting) -> None:
        if work is self._work and self.connection is None:
            self._world.count("lines")
            self.connection = Connection(self._world, self)
            for message in self._courier.connect():
                self.connection.up.send(encode_from_party(message))

    def _go_on(self, work: Waiting) -> None:
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
            self._world.agenda.note(f"{self.name} is done")
        else:
            if pause is not None:
                self._busy = True
                self._world.agenda.after(pause, lambda: self._go_on(work))

    def _post(self, message: FromParty) -> None:
        raw = encode_from_party(message)
        self._world.agenda.note(f"{self.name}: {_short(message)} {zlib.crc32(raw)}")
        self._world.witness.posted(self.name, message)
        self._courier.post(message)
        if self.connection is not None:
            self.connection.up.send(raw)

    def _take_part(self) -> Waiting:
        case, agenda = self._world.case, self._world.agenda
        keeper = Keeper(
            self.disk,
            {"run.toml": case.run_hash.hex()},
            case.settings.training.checkpoint_seconds,
            clock=lambda: agenda.now,
        )
        diary = Diary()
        saved = keeper.load(diary)
        done = -1 if saved is None else int(saved["position"][0]) - 1
        incarnation = keeper.next_incarnation()
        self._courier = Courier(Hello(case.run_hash, bytes(32), case.rows, case.held_out, incarnation, done))
        self._connect(self._work_of_now())
        result = keeper.result()
        if result is None:
            if self._leads:
                self._post(case.labels)
            while not self._leads and self._courier.labels is None:
                yield None
            worker = case.worker(self.name, self._courier.labels or case.labels)
            if saved is not None:
                worker.restore(saved)
                agenda.note(f"{self.name} goes on at step {worker.step}")
            yield from self._train(worker, keeper, diary)
            result = hash_state(worker.model.state())
            keeper.note_result(result)
        self._post(Finished(result))
        while not self._courier.all_stored:
            yield None
        self.result = result

    def _work_of_now(self) -> Waiting:
        assert self._work is not None
        return self._work

    def _train(self, worker: Worker, keeper: Keeper, diary: Diary) -> Waiting:
        kept = -1
        for step, release in worker.opening():
            self._post(Push(step, release))
        while not worker.finished:
            while (total := self._courier.take(worker.step)) is None:
                yield None
            yield self._world.agenda.about(_LEARN)
            for step, release in worker.learn(total):
                self._post(Push(step, release))
            self._world.count("steps")
            if worker.ended_epoch:
                self._try_out(worker, diary)
            safe = keeper.after_step(worker, diary)
            if safe > kept:
                kept = safe
                self._post(Kept(safe))
        for epoch in sorted(diary.pending):
            while epoch not in self._courier.verdicts and epoch not in self._courier.judged:
                yield None
            verdict = self._courier.verdicts.pop(epoch, None)
            self._judge([] if verdict is None else [verdict], diary)

    def _try_out(self, worker: Worker, diary: Diary) -> None:
        self._post(Trial(worker.epoch, self._world.case.trial(self.name, worker)))
        if self._leads:
            diary.pending[worker.epoch] = (self._world.agenda.now, worker.loss_sum)
            self._judge([self._courier.verdicts.pop(epoch) for epoch in sorted(self._courier.verdicts)], diary)

    def _judge(self, verdicts: list[Verdict], diary: Diary) -> None:
        for verdict in verdicts:
            if verdict.epoch in diary.pending:
                seconds, loss = diary.pending.pop(verdict.epoch)
                self._post(Metrics(verdict.epoch, seconds, loss, float(decode(verdict.values).sum()), 0.0))


class World:
    """One seed's run: the processes, what goes wrong, and the witness."""

    def __init__(self, seed: int) -> None:
        self.agenda = Agenda(seed)
        self.case = Case.draw(self.agenda.random)
        self.witness = Witness(self.case)
        self.counts: Counter[str] = Counter()
        self.server = ServerSide(self)
        self.parties = [PartySide(self, name) for name in self.case.settings.parties]
        self._faults_left = self.agenda.random.randint(0, _MOST_FAULTS)

    def count(self, what: str) -> None:
        """One more of this."""
        self.counts[what] += 1

    def run(self) -> None:
        """To the end, or `CheckFailed`."""
        self.agenda.after(0.0, self.server.start)
        for party in self.parties:
            self.agenda.after(self.agenda.about(_RESTART), party.start)
        self._plan_fault()
        while not self._finished:
            if not self.agenda.next():
                raise CheckFailed(f"nothing moves any more; {self._who_is_left()}")
            if self.agenda.events > _MOST_EVENTS:
                raise CheckFailed(f"no end after {_MOST_EVENTS} events; {self._who_is_left()}")
        host = self.server.host
        if host is not None:
            self.witness.ended(host, {party.name: party.result or b"" for party in self.parties})

    @property
    def _finished(self) -> bool:
        return self.server.host is not None and all(party.result is not None for party in self.parties)

    def _who_is_left(self) -> str:
        host = self.server.host
        left = [party.name for party in self.parties if party.result is None]
        waits = {name: [] if host is None else host.waits_for(name) for name in left}
        return f"not finished: {waits}, server {'down' if host is None else 'up'}"

    def _plan_fault(self) -> None:
        if self._faults_left:
            self._faults_left -= 1
            self.agenda.after(self.agenda.about(_CALM), self._go_wrong)

    def _go_wrong(self) -> None:
        random, party = self.agenda.random, self.agenda.random.choice(self.parties)
        match random.choice(("kill server", "kill party", "server disk", "party disk", "line", "line", "stall")):
            case "kill server" if self.server.host is not None:
                self.server.kill()
            case "kill party" if party.alive:
                party.kill()
                self._age(party.disk)
            case "server disk":
                self.server.disk.arm(random.randint(0, 4))
            case "party disk":
                party.disk.arm(random.randint(0, 2))
            case "line" if party.connection is not None:
                self.count("broken lines")
                self.agenda.note(f"line of {party.name} breaks")
                party.connection.break_off()
            case "stall" if party.connection is not None:
                party.connection.up.stall(self.agenda.about(0.05))
                party.connection.down.stall(self.agenda.about(0.05))
        self._plan_fault()

    def _age(self, disk: VirtualDisk) -> None:
        """Damage one of two good generations of a checkpoint, now and then."""
        name = self.agenda.random.choice(("checkpoint.0", "checkpoint.1"))
        if self.agenda.random.random() < 0.2 and name in disk.files:
            before = disk.files[name]
            disk.damage(name)
            try:
                sound = Generations(disk, "checkpoint").load() is not None
            except StateDamaged:
                sound = False
            if sound:
                self.count("damaged checkpoints")
                self.agenda.note(f"{name} is damaged")
            else:
                disk.files[name] = before


@dataclass(frozen=True)
class SeedOutcome:
    """How one seed went."""

    trace_hash: str
    counts: Counter[str]


def run_seed(seed: int) -> SeedOutcome:
    """Run one seed; `CheckFailed` says what was wrong, how to see it again, and what happened last."""
    world = World(seed)
    try:
        world.run()
    except _BUGS as error:
        what = str(error) if isinstance(error, CheckFailed) else f"{type(error).__name__}: {error}"
        tail = "\n".join(world.agenda.trace[-_TAIL:])
        raise CheckFailed(
            f"seed {seed}: {what}\n{tail}\nseed {seed}: {what}\nsee it again: fdml bench protocol --first {seed} --seeds 1"
        ) from error
    return SeedOutcome(world.agenda.trace_hash(), world.counts)


def run(progress: Progress, first: int = 0, seeds: int = 10_000) -> Report:
    """Run `seeds` seeds from `first` on; the first that breaks a promise ends it."""
    of_machine = machine()
    counts: list[Counter[str]] = []
    for seed in range(first, first + seeds):
        outcome = run_seed(seed)
        if seed % _TWICE_EVERY == 0 and run_seed(seed).trace_hash != outcome.trace_hash:
            raise CheckFailed(f"seed {seed} did not go twice in the same way; look for what is not drawn from the seed")
        counts.append(outcome.counts)
        if len(counts) % _TELL_EVERY == 0:
            progress(f"{len(counts)} of {seeds} seeds, no promise broken")
    question = f"Does the protocol keep its promises whatever happens? Seeds {first} to {first + seeds - 1}: yes."
    return Report("protocol", question, _rows(counts), {}, of_machine, commit())


def _rows(counts: Sequence[Counter[str]]) -> list[dict[str, Any]]:
    kinds = sorted({kind for each in counts for kind in each})
    rows: list[dict[str, Any]] = [
        {"contender": "seeds", "median": len(counts), "min": len(counts), "max": len(counts), "unit": "run"}
    ]
    for kind in kinds:
        figures = [each[kind] for each in counts]
        spread = {"median": median(figures), "min": min(figures), "max": max(figures)}
        rows.append({"contender": kind, **spread, "unit": f"per seed, {sum(figures):,} in all", "total": sum(figures)})
    return rows


def _short(message: object) -> str:
    number = next((getattr(message, name) for name in ("step", "epoch", "count") if hasattr(message, name)), "")
    return f"{type(message).__name__} {number}"
