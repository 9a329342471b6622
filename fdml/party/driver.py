"""Carries out the effects of a party's session over a channel and a store."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar, cast

from fdml.align.kept import Generation
from fdml.errors import FdmlError
from fdml.events import Listener
from fdml.party.alignment import SharedRows
from fdml.party.channel import BlockingChannel, Channel
from fdml.party.checkpoint import Checkpoint, FinishedModel
from fdml.party.effects import (
    Effect,
    Emit,
    Flush,
    PartyResult,
    Receive,
    SaveAlignment,
    SaveCheckpoint,
    SaveGeneration,
    SaveResult,
    SaveRowsOffer,
    Send,
    WriteBundle,
    WriteStatement,
)
from fdml.party.session import PartySession
from fdml.privacy.statement import Statement
from fdml.protocol.alignment_messages import RowsOffer

T = TypeVar("T")
_WAITING = (Receive, Flush)
"""Effects that may have to wait."""


class PartyStore(Protocol):
    """Where a party keeps what must last. Everything is durable on return."""

    def save_rows_offer(self, state: bytes, offer: RowsOffer) -> None:
        """Keep what this party offers to the run, and the state of its ids, for later starts."""
        ...

    def save_generation(self, generation: Generation) -> None:
        """Keep a generation of the alignment for all runs."""
        ...

    def save_alignment(self, shared: SharedRows) -> None:
        """Keep the run's rows for later starts."""
        ...

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint for later starts."""
        ...

    def save_result(self, result: FinishedModel) -> None:
        """Keep the result for later starts."""
        ...

    def write_statement(self, statement: Statement) -> None:
        """Write the privacy statement for people."""
        ...

    def write_bundle(self, bundle: WriteBundle) -> Path | None:
        """Write the trained model; gives the folder."""
        ...


def run_session(session: PartySession, channel: BlockingChannel, store: PartyStore, on_event: Listener) -> PartyResult:
    """Run a session to its end, in the calling thread."""
    driver = SessionDriver(session.run(), session, channel, store, on_event)
    return replace(_to_the_end(driver, channel), bundle=driver.bundle)


def run_alignment(session: PartySession, channel: BlockingChannel, store: PartyStore, on_event: Listener) -> SharedRows:
    """Run the alignment of a session, and nothing else, in the calling thread."""
    return _to_the_end(SessionDriver(session.align(), session, channel, store, on_event), channel)


def _to_the_end(driver: SessionDriver[T], channel: BlockingChannel) -> T:
    while driver.advance():
        try:
            channel.wait(driver.can_go_on, driver.waits_for)
        except FdmlError as error:
            driver.fail(error)
    return driver.result


class SessionDriver(Generic[T]):
    """Carries out a session's effects one by one, until one has to wait.

    Who calls `advance` decides how to wait: a thread blocks, parties that take
    turns let the next one go on, the simulator lets virtual time pass.
    """

    def __init__(
        self,
        effects: Generator[Effect, None, T],
        session: PartySession,
        channel: Channel,
        store: PartyStore,
        on_event: Listener,
    ) -> None:
        self._effects = effects
        self._session = session
        self._channel = channel
        self._store = store
        self._on_event = on_event
        self._effect: Effect | None = None
        self._result: T | None = None
        self.has_ended = False
        self.bundle: Path | None = None
        self._go_on(effects.__next__)

    @property
    def result(self) -> T:
        """What the session has returned."""
        if not self.has_ended:
            raise FdmlError("the session has not ended, so it has no result yet")
        return cast(T, self._result)

    @property
    def is_ready(self) -> bool:
        """Whether the next effect can be carried out now."""
        return self.can_go_on()

    def can_go_on(self) -> bool:
        """The same, to be asked by who waits for it."""
        kind = type(self._effect)
        if kind is Receive:
            return self._channel.has_message
        return kind is not Flush or self._channel.all_stored

    @property
    def waits_for(self) -> str:
        """What the next effect waits for, with a place for whom."""
        return self._effect.what if isinstance(self._effect, Receive) else "for {} to store the last messages"

    def advance(self) -> bool:
        """Carry out effects until one has to wait. False once the session has ended."""
        while not self.has_ended:
            if type(self._effect) in _WAITING and not self.can_go_on():
                return True
            self.step()
        return False

    def step(self) -> None:
        """Carry out the next effect, which must be ready."""
        try:
            self._carry_out()
        except FdmlError as error:
            self.fail(error)
            return
        try:
            self._effect = next(self._effects)
        except StopIteration as end:
            self._end(end.value)

    @property
    def is_waiting(self) -> bool:
        """Whether the next effect is one that may have to wait."""
        return type(self._effect) in _WAITING

    def fail(self, error: FdmlError) -> None:
        """Raise an error inside the session, which may know a way out; else it is raised here."""
        self._go_on(lambda: self._effects.throw(error))

    def _go_on(self, resume: Callable[[], Effect]) -> None:
        try:
            self._effect = resume()
        except StopIteration as end:
            self._end(end.value)

    def _end(self, result: T) -> None:
        self._effect, self._result, self.has_ended = None, result, True

    def _carry_out(self) -> None:
        effect = self._effect
        if type(effect) is Emit:  # these three first, as every step has them
            self._on_event(effect.event)
        elif type(effect) is Send:
            self._channel.send(effect.message)
        elif type(effect) is Receive:
            received = self._channel.poll()
            if received is None:
                raise FdmlError("a message was there and is gone: another thread has taken it")
            self._session.deliver(received)
        else:
            self._keep(effect)

    def _keep(self, effect: Effect | None) -> None:
        """Store something that must last."""
        match effect:
            case SaveCheckpoint(checkpoint):
                unacknowledged = (*self._channel.unacknowledged(), *checkpoint.unacknowledged)
                self._store.save_checkpoint(replace(checkpoint, unacknowledged=unacknowledged))
            case SaveRowsOffer(state, offer):
                self._store.save_rows_offer(state, offer)
            case SaveGeneration(generation):
                self._store.save_generation(generation)
            case SaveAlignment(shared):
                bytes_sent, bytes_received = self._channel.traffic
                report = replace(shared.report, bytes_sent=bytes_sent, bytes_received=bytes_received)
                self._store.save_alignment(replace(shared, report=report))
            case SaveResult(result):
                self._store.save_result(result)
            case WriteStatement(statement):
                self._store.write_statement(statement)
            case WriteBundle() as bundle:
                self.bundle = self._store.write_bundle(bundle)
