"""The same run without faults, to compare with: parties that take turns, or one party fed with what it was sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TypeVar

from fdml.align.group_key import GroupKey
from fdml.align.sealed_metrics import open_metrics
from fdml.errors import InvariantBroken
from fdml.experiments.in_memory import NothingStored
from fdml.models.model import State
from fdml.party.alignment import SharedRows
from fdml.party.channel import Incoming, ToServer
from fdml.party.checkpoint import SavedState
from fdml.party.driver import SessionDriver
from fdml.party.effects import Effect
from fdml.party.session import PartySession
from fdml.protocol.alignment_messages import Fetch, Post
from fdml.protocol.messages import FromParty, FromServer
from fdml.server.alignment import AlignmentPhase
from fdml.server.generations import Generations
from fdml.server.run_alignment import RunAlignment
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession
from fdml.storage.memory import MemoryDisk
from fdml.transport.in_process import InProcessServer
from simulator.earlier import earlier_run
from simulator.party_invariants import figures
from simulator.scenarios import Scenario

T = TypeVar("T")


@dataclass(frozen=True)
class Reference:
    """How a run without faults ends."""

    models: Mapping[str, State]
    metrics: Mapping[int, tuple[float | None, ...]]
    """By epoch, without the time they took."""
    end: int
    """How many steps it has."""


class _AlignmentStored(NothingStored):
    """Keeps the key that the parties have aligned to."""

    key: GroupKey

    def save_alignment(self, shared: SharedRows) -> None:
        """Keep its key."""
        self.key = shared.key


def definition_of(scenario: Scenario) -> RunDefinition:
    """What the server knows of the run."""
    return RunDefinition(scenario.settings, scenario.run_hash, piece_rows=scenario.sent_rows)


def fault_free_run(scenario: Scenario) -> Reference:
    """The models and metrics at the end of a run in which nothing goes wrong."""
    sessions, state = (
        _sessions(scenario),
        RunState(definition_of(scenario)),
    )
    stored = _AlignmentStored()
    _take_turns(scenario, state, {name: (each, each.run()) for name, each in sessions.items()}, stored)
    models = {name: _parameters(session) for name, session in sessions.items()}
    history = {epoch: figures(open_metrics(stored.key, each)) for epoch, each in state.history.items()}
    return Reference(models, history, 0 if state.coordinator is None else state.coordinator.end)


@lru_cache(maxsize=1)
def alignment_of(scenario: Scenario) -> dict[str, SharedRows]:
    """What every party aligns to."""
    state = RunState(definition_of(scenario))
    work = {name: (each, each.align()) for name, each in _sessions(scenario).items()}
    return _take_turns(scenario, state, work, NothingStored())


def _sessions(scenario: Scenario) -> dict[str, PartySession]:
    ticks, earlier = count(), earlier_run(scenario)
    return {
        name: PartySession(scenario.member(name, 1, kept=earlier.kept(name)), SavedState(), lambda: float(next(ticks)))
        for name in scenario.settings.parties
    }


def _take_turns(
    scenario: Scenario,
    state: RunState,
    work: Mapping[str, tuple[PartySession, Generator[Effect, None, T]]],
    store: NothingStored,
) -> dict[str, T]:
    """Let all parties work in turns, in one thread; gives what each session returned."""
    settings, ticks = scenario.settings, count()
    before = MemoryDisk(earlier_run(scenario).server)
    rows = RunAlignment(settings, MemoryDisk(), Generations.of(settings, before, scenario.piece_rows))

    def clock() -> float:
        return float(next(ticks))

    alignment = AlignmentPhase(rows, settings.parties, scenario.run_hash, clock)
    session = ServerSession(state, alignment, settings, clock)
    server = InProcessServer(session, scenario.run_hash, settings.training.peer_timeout_seconds)
    drivers = {
        name: SessionDriver(effects, each, server.channel(name), store, lambda _: None)
        for name, (each, effects) in work.items()
    }
    while left := [driver for driver in drivers.values() if not driver.has_ended]:
        if not any(driver.is_ready for driver in left):
            raise InvariantBroken("without any fault all parties wait for each other")
        for driver in left:
            driver.advance()
    return {name: driver.result for name, driver in drivers.items()}


def _parameters(session: PartySession) -> State:
    if session.worker is None:
        raise InvariantBroken("a party has ended without training")
    return session.worker.parameters()


class ScriptedChannel:
    """A channel on which everything has come already, and everything sent is stored at once."""

    traffic = (0, 0)
    all_stored = True

    def __init__(self, script: Sequence[FromServer]) -> None:
        self._script = deque(script)
        self.sent: list[FromParty] = []

    @property
    def has_message(self) -> bool:
        """Whether the script goes on."""
        return bool(self._script)

    def send(self, message: ToServer) -> None:
        """Keep the message."""
        if isinstance(message, Post | Fetch):
            raise InvariantBroken("an aligned party aligned again")
        self.sent.append(message)

    def poll(self) -> Incoming | None:
        """The next message of the script."""
        return self._script.popleft() if self._script else None

    def unacknowledged(self) -> list[FromParty]:
        """Nothing is ever on its way."""
        return []

    def close(self) -> None:
        """Nothing."""


def replay(
    scenario: Scenario, party: str, shared: SharedRows, script: Sequence[FromServer]
) -> tuple[list[FromParty], State]:
    """What a party sends, and its model at the end, if it is sent these messages and nothing goes wrong."""
    member = scenario.member(party, 1, shared=shared)
    ticks = count()
    session = PartySession(member, SavedState(), lambda: float(next(ticks)))
    channel = ScriptedChannel(script)
    driver = SessionDriver(session.run(), session, channel, NothingStored(), lambda _: None)
    if driver.advance():
        raise InvariantBroken(f"{party} would wait {driver.waits_for.format('others')}, though it was sent all it used")
    return channel.sent, _parameters(session)
