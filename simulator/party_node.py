"""One party's process in virtual time. It drives the session that ships; only sockets and threads are virtual."""

from __future__ import annotations

from pathlib import Path

from fdml.errors import InvariantBroken
from fdml.events import EpochChosen, Event, Joined, StepDone, Stopped
from fdml.party.alignment import SharedRows
from fdml.party.checkpoint import Checkpoint, FinishedModel
from fdml.party.disk_store import DiskStore
from fdml.party.driver import SessionDriver
from fdml.party.effects import PartyResult, WriteBundle
from fdml.party.session import PartySession
from fdml.privacy.statement import Statement
from fdml.storage.arrays import hash_arrays
from simulator.channel import Connection, Down, LineEnd, ServerEnd, SimulatedChannel, Simulation
from simulator.clock import RESTART
from simulator.disk import Crashed, VirtualDisk
from simulator.party_invariants import PartyChecker

_LEARN, _RECONNECT = 0.004, 0.01
"""Virtual seconds that a party computes on what has come, and until it opens a new line."""
_PAUSES = 0.1
"""How often time passes between two effects of a party, so that it can be killed there."""


class CheckedStore(DiskStore):
    """The store that ships, made anew at each start as a process would, with a checker beside it."""

    def __init__(self, disk: VirtualDisk, party: str, run_hash: bytes, checker: PartyChecker) -> None:
        super().__init__(disk, run_hash=run_hash, data="rows")
        self._party = party
        self._checker = checker

    def save_alignment(self, shared: SharedRows) -> None:
        """Keep the alignment, if it is the right one."""
        self._checker.aligned(self._party, shared)
        super().save_alignment(shared)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint, if nothing is left out of it."""
        self._checker.saved(self._party, checkpoint)
        super().save_checkpoint(checkpoint)

    def save_result(self, result: FinishedModel) -> None:
        """Keep the result, if nothing is left to send."""
        self._checker.noted(self._party)
        super().save_result(result)

    def write_statement(self, statement: Statement) -> None:
        """A file more in the middle of which the disk may fail."""
        self._checker.stated(self._party, statement)
        self.disk.replace("statement", statement.as_text().encode())

    def write_bundle(self, bundle: WriteBundle) -> Path | None:
        """A file more in the middle of which the disk may fail."""
        self._checker.bundled(self._party, bundle.evaluated)
        self.disk.replace("model", hash_arrays(bundle.parameters))
        return None


class PartyNode:
    """One party's process, and its disk."""

    def __init__(self, simulation: Simulation, server: ServerEnd, name: str) -> None:
        self.virtual_disk = VirtualDisk(simulation.queue.random, torn=("checkpoint",))
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
            store = CheckedStore(self.virtual_disk, self.name, scenario.run_hash, self._simulation.checker.party)
            saved = store.load()
            member = scenario.member(
                self.name,
                saved.incarnation,
                disk=self.virtual_disk,
                shared=store.shared_rows(),
                kept=store.kept.load(),
                offered=store.offered(),
            )
            session = PartySession(member, saved, lambda: queue.now)
            self._channel = SimulatedChannel(self._simulation, self, self._server)
            self._driver = SessionDriver(session.run(), session, self._channel, store, self._listen)
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
            case Joined(party):
                self._simulation.checker.began(party)
            case StepDone():
                self._simulation.counts["steps"] += 1
            case EpochChosen(party, epoch):
                self._simulation.counts["parties that keep the best epoch"] += 1
                self._simulation.checker.party.chose(party, epoch)
            case Stopped(party, step):
                self._simulation.counts["parties that ended early"] += 1
                self._simulation.checker.learned(party, step - 1)
