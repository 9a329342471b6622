"""One seed is one run in which things go wrong: does the protocol keep its promises whatever happens?

The sessions that ship run in virtual time. Lines break with messages on their
way and may bring the rest long after a newer line was opened; disks fail in the
middle of a write or are full; server and parties are killed and started again. What must
hold is checked from outside.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fdml.errors import FdmlError, InvariantBroken, StateCorrupt
from fdml.storage.two_slots import TwoSlots
from simulator.channel import Simulation
from simulator.clock import RESTART, EventQueue
from simulator.disk import VirtualDisk
from simulator.earlier import earlier_run
from simulator.invariants import InvariantChecker
from simulator.party_node import PartyNode
from simulator.scenarios import Scenario
from simulator.server_node import ServerNode

_CALM = 0.03
"""Virtual seconds between two faults."""
_STALL = 0.05
_MOST_FAULTS = 16
_LATE = 0.6
"""How many of the runs align in peace: else nearly all faults come before there is a total or a checkpoint."""
_MOST_EVENTS = 20_000
"""Far more than any run needs, its faults included: a run that takes them does not end."""
_TAIL = 60
_BUGS = (FdmlError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a wrong program raises."""
_FAULTS = ("kill server", "kill party", "server disk", "full disk", "full disk", "party disk", "line", "line", "stall")


class SimulatedRun:
    """One seed's run: the processes, what goes wrong, and what is checked."""

    def __init__(self, seed: int) -> None:
        self.queue = EventQueue(seed)
        scenario = Scenario.draw(self.queue.random)
        self.simulation = Simulation(self.queue, scenario, InvariantChecker(scenario))
        self._server = ServerNode(self.simulation)
        self._parties = [PartyNode(self.simulation, self._server, name) for name in scenario.settings.parties]
        earlier = earlier_run(scenario)
        self._server.disk.files |= earlier.server
        for party in self._parties:
            party.virtual_disk.files |= earlier.parties[party.name]
        self.simulation.counts["runs that add to an alignment"] = bool(earlier.server)
        self._unlucky = self.queue.random.choice(self._parties)
        """What goes wrong at a party goes wrong here most often: some faults only matter one after the other."""
        self._faults_left = self.queue.random.randint(0, _MOST_FAULTS)
        self._faults_wait = self.queue.random.random() < _LATE
        """Whether nothing goes wrong before a step is done."""

    def run(self) -> None:
        """To the end, or `InvariantBroken`."""
        self.queue.after(0.0, self._server.start)
        for party in self._parties:
            self.queue.after(self.queue.about(RESTART), party.start)
        self._plan_fault()
        while self._server.state is None or any(party.result is None for party in self._parties):
            if not self.queue.next():
                raise InvariantBroken(f"nothing moves any more; {self._who_is_left()}")
            if self.queue.events > _MOST_EVENTS:
                raise InvariantBroken(f"no end after {_MOST_EVENTS} events; {self._who_is_left()}")
        models = {party.name: party.result for party in self._parties if party.result is not None}
        self.simulation.checker.ended(self._server.state, models)

    def _who_is_left(self) -> str:
        state = self._server.state
        left = [party.name for party in self._parties if party.result is None]
        if state is None:
            return f"{', '.join(left)} have not finished, and the server is down"
        return "; ".join(f"{name} waits for {', '.join(state.waits_for(name))}" for name in left)

    def _plan_fault(self) -> None:
        if self._faults_left:
            self._faults_left -= 1
            self.queue.after(self.queue.about(_CALM), self._go_wrong)

    def _go_wrong(self) -> None:
        if self._faults_wait and not self.simulation.counts["steps"]:
            self.queue.after(self.queue.about(_CALM), self._go_wrong)
            return
        random = self.queue.random
        party = self._unlucky if random.random() < 0.5 else random.choice(self._parties)
        match random.choice(_FAULTS):
            case "kill server" if self._server.state is not None:
                self._server.kill()
            case "kill party" if party.is_alive:
                party.kill()
                self._corrupt(party.virtual_disk)
            case "server disk":
                self._server.disk.arm(random.randint(0, 4))
            case "full disk":
                self._server.disk.fill(random.choice((1, 1, 3)))
            case "party disk":
                party.virtual_disk.arm(random.randint(0, 2))
            case "line" if party.connection is not None:
                self.simulation.counts["broken lines"] += 1
                self.queue.note(f"line of {party.name} breaks")
                party.connection.disconnect()
            case "stall" if party.connection is not None:
                party.connection.up.stall(self.queue.about(_STALL))
                party.connection.down.stall(self.queue.about(_STALL))
        self._plan_fault()

    def _corrupt(self, disk: VirtualDisk) -> None:
        """Damage one generation of a checkpoint, now and then, where the other is good."""
        name = self.queue.random.choice(("checkpoint.0", "checkpoint.1"))
        before = disk.files.get(name)
        if before is None or self.queue.random.random() < 0.3:
            return
        disk.damage(name)
        try:
            TwoSlots(disk, "checkpoint").load()
        except StateCorrupt:
            disk.files[name] = before
        else:
            self.simulation.counts["damaged checkpoints"] += 1
            self.queue.note(f"{name} is damaged")


@dataclass(frozen=True)
class SeedOutcome:
    """How one seed went."""

    trace_hash: str
    counts: Counter[str]


def run_seed(seed: int) -> SeedOutcome:
    """Run one seed; `InvariantBroken` says what happened last, what was wrong, and how to see it again."""
    simulated = SimulatedRun(seed)
    try:
        simulated.run()
    except _BUGS as error:
        what = str(error) if isinstance(error, InvariantBroken) else f"{type(error).__name__}: {error}"
        raise InvariantBroken(
            "\n".join([*simulated.queue.trace[-_TAIL:], f"seed {seed}: {what}", f"to see it again: {_command(seed)}"])
        ) from error
    return SeedOutcome(simulated.queue.trace_hash(), simulated.simulation.counts)


def _command(seed: int) -> str:
    return f"python -m benchmarks protocol --first {seed} --seeds 1"
