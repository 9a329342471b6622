"""How long an epoch takes: the real sessions in virtual time, where computing, lines and server take what they cost.

Every row of the simulated run stands for many: their work and their bytes are charged, their values are not there.
Nothing fails and nothing is drawn at random, so a setup always takes the same time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from functools import partial
from random import Random
from string import ascii_lowercase

import numpy as np

from fdml.data.rows import DenseRows
from fdml.errors import InvariantBroken
from fdml.events import Event, StepDone
from fdml.experiments.in_memory import NothingStored
from fdml.party.channel import Incoming, ToServer
from fdml.party.checkpoint import SavedState
from fdml.party.driver import SessionDriver
from fdml.party.effects import PartyResult
from fdml.party.session import PartySession
from fdml.protocol.alignment_messages import Fetch, Post
from fdml.protocol.messages import Ack, FromParty, FromServer, Push, Total, Waiting
from fdml.server.alignment import AlignmentPhase
from fdml.server.generations import Generations
from fdml.server.run_alignment import RunAlignment
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import Answer, Commit, ServerSession, Stream
from fdml.settings import RunSettings, TrainingSettings
from fdml.settings.evaluation import EvaluationSettings
from fdml.storage.memory import MemoryDisk
from simulator.clock import EventQueue
from simulator.reference import alignment_of
from simulator.scenarios import Scenario
from simulator.timed_setup import Costs, Setup, Timed

_SHORT = 100
"""Bytes of a message without rows."""
_BATCH = 2
"""Rows of the simulated run in a block."""
_HELD_OUT = 2
_EPOCHS = 4


class _Cores:
    """Work that is done in the order in which it comes, on as many cores as there are."""

    def __init__(self, count: int) -> None:
        self._free = [0.0] * count
        self.busy = 0.0

    def take(self, now: float, seconds: float) -> float:
        """When work that comes now is done."""
        end = max(now, heapq.heappop(self._free)) + seconds
        heapq.heappush(self._free, end)
        self.busy += seconds
        return end


class _Party:
    """One party: its session, its core and its line."""

    def __init__(self, run: TimedRun, name: str, cores: _Cores) -> None:
        self.name = name
        self.stream = Stream(name)
        self.cores, self.up, self.down = cores, _Cores(1), _Cores(1)
        self.computed = 0.0
        self._run = run
        self._inbox: deque[Incoming] = deque()
        self._sent: list[FromParty] = []
        self._cost = 0.0
        self._is_busy = False
        self.driver: SessionDriver[PartyResult] | None = None

    # The channel of its session

    traffic = (0, 0)
    all_stored = True

    @property
    def has_message(self) -> bool:
        """Whether `poll` would give something."""
        return bool(self._inbox)

    def send(self, message: ToServer) -> None:
        """Keep a message until it has been computed."""
        if isinstance(message, Post | Fetch):
            raise InvariantBroken("an aligned party aligned again")
        self._cost += self._run.send_cost(message)
        self._sent.append(message)

    def poll(self) -> Incoming | None:
        """The next message; what it costs to learn from it is charged."""
        message = self._inbox.popleft() if self._inbox else None
        if isinstance(message, Total):
            self._cost += self._run.learn_cost(self.name)
        return message

    def unacknowledged(self) -> list[FromParty]:
        """Nothing is ever lost."""
        return []

    def close(self) -> None:
        """Nothing."""

    # In virtual time

    def receive(self, message: FromServer) -> None:
        """A message has come."""
        self._inbox.append(message)
        if not self._is_busy:
            self.go_on()

    def go_on(self) -> None:
        """Carry out effects until one has to wait, or takes time."""
        self._is_busy = False
        driver, queue = self.driver, self._run.queue
        while driver is not None and not driver.has_ended and driver.is_ready:
            driver.step()
            if self._cost or self._sent:
                self._is_busy = True
                end = self.cores.take(queue.now, self._cost)
                self.computed += self._cost
                self._cost = 0.0
                queue.after(end - queue.now, self._computed)
                return

    def _computed(self) -> None:
        sent, self._sent = self._sent, []
        for message in sent:
            self._run.carry_up(self, message)
        self.go_on()


class TimedRun:
    """A server and its parties in virtual time."""

    def __init__(self, setup: Setup, costs: Costs) -> None:
        self.queue = EventQueue(0)
        self._setup = setup
        self._costs = costs
        self._done: dict[str, dict[int, float]] = {}
        scenario = _scenario(setup)
        settings, disk = scenario.settings, MemoryDisk()
        shared = alignment_of(scenario)
        together = _Cores(setup.cores) if setup.cores else None
        self._server_cores = together or _Cores(setup.server_cores)
        self._lines = {"in": _Cores(1), "out": _Cores(1)}
        rows = RunAlignment(settings, disk, Generations.of(settings, disk))
        digest = next(iter(shared.values())).digest
        alignment = AlignmentPhase(rows, settings.parties, scenario.run_hash, self._clock, digest=digest)
        state = RunState(RunDefinition(settings, scenario.run_hash))
        self._session = ServerSession(state, alignment, settings, self._clock)
        self._parties = {name: _Party(self, name, together or _Cores(1)) for name in settings.parties}
        for name, party in self._parties.items():
            session = PartySession(scenario.member(name, 1, shared=shared[name]), SavedState(), self._clock)
            party.driver = SessionDriver(session.run(), session, party, NothingStored(), self._listen)

    def run(self) -> Timed:
        """Run to the end; an epoch's time is that of those between the first and the last."""
        for party in self._parties.values():
            self.queue.after(0.0, party.go_on)
        while self.queue.next():
            pass
        first, last = self._setup.blocks - 1, (_EPOCHS - 1) * self._setup.blocks - 1
        if any(party.driver is None or not party.driver.has_ended for party in self._parties.values()):
            raise InvariantBroken("a party waits for ever")
        ends = [max(done[step] for done in self._done.values()) for step in (first, last)]
        seconds, whole = (ends[1] - ends[0]) / (_EPOCHS - 2), self.queue.now
        parties = self._parties.values()
        return Timed(
            seconds,
            max(party.computed for party in parties) / whole,
            self._server_cores.busy / whole / (self._setup.cores or self._setup.server_cores),
            max(max(party.up.busy, party.down.busy) for party in parties) / whole,
            max(line.busy for line in self._lines.values()) / whole,
        )

    def _clock(self) -> float:
        return self.queue.now

    def _listen(self, event: Event) -> None:
        if isinstance(event, StepDone):
            self._done.setdefault(event.party, {})[event.step] = self.queue.now

    # What things cost

    def learn_cost(self, party: str) -> float:
        """Seconds to learn from a block."""
        slower = self._setup.slowest if party == self._last else 1.0
        return slower * self._setup.block_rows * self._costs.train_row / self._setup.shards + self._shard_cost

    def send_cost(self, message: FromParty) -> float:
        """Seconds to make a message."""
        if not isinstance(message, Push):
            return 0.0
        rows, costs = self._setup.block_rows, self._costs
        return rows * (costs.predict_row / self._setup.shards + costs.carry_row) + costs.party_step

    @property
    def _shard_cost(self) -> float:
        return self._costs.hand_over * self._setup.shards if self._setup.shards > 1 else 0.0

    @property
    def _last(self) -> str:
        return list(self._parties)[-1]

    def _bytes(self, message: FromParty | FromServer) -> float:
        return self._setup.block_rows * self._setup.row_bytes if isinstance(message, Push | Total) else _SHORT

    # On the way

    def carry_up(self, party: _Party, message: FromParty) -> None:
        """Bring a message to the server: over the party's line, the server's, and into the server."""
        size, now = self._bytes(message), self.queue.now
        there = party.up.take(now, size / self._setup.line) + self._setup.round_trip / 2
        self.queue.after(there - now, partial(self._arrive, party, message, size))

    def _arrive(self, party: _Party, message: FromParty, size: float) -> None:
        now, costs = self.queue.now, self._costs
        there = self._lines["in"].take(now, size / self._setup.server_line)
        spent = self._setup.block_rows * costs.server_row + costs.server_push if isinstance(message, Push) else 0.0
        end = self._server_cores.take(there, spent)
        self.queue.after(end - now, partial(self._process, party, message))

    def _process(self, party: _Party, message: FromParty) -> None:
        self._session.receive(party.stream, message)
        for effect in self._session.process():
            match effect:
                case Commit():
                    self._session.state.commit()
                case Answer(stream, answer) if not isinstance(answer, Ack | Waiting):
                    self._carry_down(self._parties[stream.party], answer)

    def _carry_down(self, party: _Party, message: FromServer) -> None:
        size, now = self._bytes(message), self.queue.now
        out = self._lines["out"].take(now, size / self._setup.server_line) + self._setup.round_trip / 2
        there = party.down.take(out, size / self._setup.line)
        self.queue.after(there - now, partial(party.receive, message))


def epoch_of(setup: Setup, costs: Costs) -> Timed:
    """How long an epoch of this setup takes."""
    return TimedRun(setup, costs).run()


def _scenario(setup: Setup) -> Scenario:
    parties = [f"{'pqrs'[number // 26]}{ascii_lowercase[number % 26]}" for number in range(setup.parties)]
    rows = setup.blocks * _BATCH
    training = TrainingSettings(
        epochs=_EPOCHS, batch_size=_BATCH, batches_per_block=1, value_bits=16, lookahead=setup.lookahead, staleness=0,
        checkpoint_seconds=1e9, learning_rate=0.1,
    )  # fmt: skip
    settings = RunSettings(
        parties=tuple(parties),
        label_party=parties[0],
        task="regression",
        training=training,
        evaluation=EvaluationSettings(holdout=_HELD_OUT / (rows + _HELD_OUT), every="end"),
    )
    return Scenario(
        settings,
        rows,
        _HELD_OUT,
        rotate_bytes=10**9,
        features={party: _features(rows + _HELD_OUT, party) for party in parties},
        ids={party: _ids(rows + _HELD_OUT) for party in parties},
        has_ids=False,
        allowed={},
    )


def _features(rows: int, party: str) -> DenseRows:
    random = Random(party)
    values: Sequence[float] = [random.random() for _ in range(2 * rows)]
    return DenseRows(np.array(values, np.float32).reshape(-1, 2))


def _ids(rows: int) -> tuple[str, ...]:
    return tuple(f"row {number}" for number in range(rows))
