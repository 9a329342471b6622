"""The server's state of a run, and its recovery: it checks, remembers, logs and answers, without sockets.

`take` moves the state and gathers replies; they may be sent only after `commit`
has made the log durable. So nothing that was sent is ever forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.limits import LARGEST_MATRIX
from fdml.protocol.messages import (
    BestEpoch,
    Checkpointed,
    Finished,
    FromParty,
    Gradient,
    HeldOutPredictions,
    Hello,
    Labels,
    Push,
    Reply,
    SealedMetrics,
    Stop,
    Welcome,
)
from fdml.protocol.wire import decode_from_party, encode_from_party
from fdml.server.checks import UNFORESEEN, check_labels, check_log, check_outcome, check_stops, unforeseen
from fdml.server.coordinator import Coordinator
from fdml.server.evaluation import HeldOutSums
from fdml.server.membership import Membership
from fdml.server.stored_labels import StoredLabels, pieces_of_labels
from fdml.server.training_state import new_training, width_of
from fdml.settings import RunSettings
from fdml.storage.arrays import hash_arrays, pack_arrays, unpack_arrays
from fdml.storage.disk import Disk
from fdml.storage.journal import Journal
from fdml.storage.two_slots import TwoSlots

_ROTATE_BYTES = 256 * 2**20
_SNAPSHOT = 2
"""Number of what a snapshot has in it; another one is not read."""


@dataclass(frozen=True)
class RunDefinition:
    """What the server knows of a run before anyone has joined."""

    settings: RunSettings
    run_hash: bytes
    largest_matrix: int = LARGEST_MATRIX
    """Bytes of predictions that this machine has memory for."""
    piece_rows: int | None = None
    """Rows of a piece of labels and of held-out predictions; None takes what is usual."""


class RunState:
    """The server's state of one run. `RunState.open` goes on from what the disk holds; without one nothing lasts."""

    def __init__(self, definition: RunDefinition, disk: Disk | None = None, rotate_bytes: int = _ROTATE_BYTES) -> None:
        self._definition = definition
        self._parties = definition.settings.parties
        self._journal = None if disk is None else Journal(disk, "journal")
        self._snapshots = None if disk is None else TwoSlots(disk, "snapshot")
        self._rotate_bytes = rotate_bytes
        self._unlogged: list[bytes] = []
        self._can_log = True
        self._forget()

    def _forget(self) -> None:
        """Be as before the first message."""
        self._number = 0
        """Of the last message acted on: where the log goes on after a snapshot."""
        self._membership = Membership(self._definition.run_hash)
        self.labels = StoredLabels()
        self.coordinator: Coordinator | None = None
        self._held_out: HeldOutSums | None = None
        self.history: dict[int, SealedMetrics] = {}
        """By epoch, what the label party reported: nothing that the server can read."""
        self._finished: dict[str, bytes] = {}

    @classmethod
    def open(cls, definition: RunDefinition, disk: Disk, rotate_bytes: int = _ROTATE_BYTES) -> Self:
        """Continue from the newest snapshot and the log after it."""
        state = cls(definition, disk, rotate_bytes)
        state._recover()
        return state

    def _recover(self) -> None:
        if self._journal is None or self._snapshots is None:
            return
        stored = self._snapshots.load()
        if stored is not None:
            self._restore(stored)
        for raw in self._journal.replay():
            self._replay(pb.Record.FromString(raw))

    def _replay(self, record: pb.Record) -> None:
        if record.number <= self._number:
            return
        if record.number != self._number + 1 or not record.message:
            raise StateCorrupt(
                f"the log goes on at message {record.number}, the newest readable snapshot ends at {self._number}; "
                f"restore the damaged one, or give the run a new name at every side"
            )
        try:
            self._apply(record.sender, decode_from_party(record.message))
        except MessageRefused as refused:
            raise StateCorrupt(f"the log does not fit this run ({refused}); give the run a new name") from None
        self._number = record.number

    def take(self, sender: str, message: FromParty, raw: bytes | None = None) -> list[Reply]:
        """Act on one message; a refused message changes nothing and raises `MessageRefused`.

        `raw` are the bytes it came as, to be logged as they are.
        """
        if sender not in self._parties:
            raise MessageRefused(f"{sender!r} is not a party of this run", Refusal.NOT_PERMITTED)
        repeated = self._is_repeat(sender, message)
        try:
            replies = self._apply(sender, message)
        except UNFORESEEN as error:
            raise self._undone(sender, message, error) from error
        if self._journal is not None and not repeated:
            self._number += 1
            record = pb.Record(number=self._number, sender=sender, message=raw or encode_from_party(message))
            self._unlogged.append(record.SerializeToString())
        return replies

    def _is_repeat(self, sender: str, message: FromParty) -> bool:
        """Whether a message that is in order changes nothing that has to last: such a message is not logged."""
        coordinator, held_out = self.coordinator, self._held_out
        match message:
            case Push(step):
                return coordinator is not None and step <= coordinator.pushed(sender)
            case Hello(incarnation=incarnation):
                return self.incarnation(sender) == incarnation
            case Labels():
                return self.labels.has(message)
            case Gradient(step):
                return coordinator is not None and step <= coordinator.last_gradient
            case Stop():
                return coordinator is not None and coordinator.has_stopped(sender)
            case Checkpointed():
                return True
            case HeldOutPredictions():
                return held_out is not None and held_out.has_part(sender, message)
            case SealedMetrics(epoch):
                waiting = held_out is not None and held_out.has_total(epoch)
                return self.history.get(epoch) == message and not waiting
            case BestEpoch():
                return held_out is not None and held_out.best is not None
            case Finished():
                return self.has_finished(sender)

    def _undone(self, sender: str, message: FromParty, error: BaseException) -> MessageRefused:
        """The refusal of a message that failed halfway; the state is read anew from the log, which does not have it."""
        if self._journal is None:
            raise error
        self.commit()
        self._forget()
        self._recover()
        return unforeseen(sender, f"a {type(message).__name__}", error)

    def commit(self) -> None:
        """Make everything taken so far durable. Only then may the replies be sent, and after a failure none."""
        if self._journal is None or self._snapshots is None:
            return
        self._can_log = check_log(is_open=self._can_log)
        if self._unlogged:
            self._journal.append(self._unlogged)
            self._unlogged = []
        if self._journal.size > self._rotate_bytes:
            self._snapshots.save(pack_arrays(self._arrays()))
            self._journal.restart([pb.Record(number=self._number).SerializeToString()])
        self._can_log = True

    def incarnation(self, party: str) -> int:
        """The newest start of a party."""
        return self._membership.incarnation(party)

    def has_finished(self, party: str) -> bool:
        """Whether a party has trained to the end."""
        return party in self._finished

    @property
    def finished(self) -> bool:
        """Whether all parties have."""
        return len(self._finished) == len(self._parties)

    @property
    def rows(self) -> int:
        """How many rows the run trains on; 0 before anyone has joined."""
        return 0 if self._membership.alignment is None else self._membership.alignment.rows

    @property
    def width(self) -> int:
        """How many floats of each row a prediction has; 1 before the labels have come."""
        return 1 if (first := self.labels.first) is None else width_of(self._definition.settings, first)

    @property
    def best_epoch(self) -> BestEpoch | None:
        """Which epoch's model all parties keep, sealed, once the label party has told."""
        return None if self._held_out is None else self._held_out.best

    def waits_for(self, party: str) -> list[str]:
        """Whom a party's next total waits for."""
        if self.coordinator is None:
            return [self._definition.settings.label_party]
        return self.coordinator.waits_for(party)

    def fingerprint(self) -> bytes:
        """A hash over the whole state."""
        return hash_arrays(self._arrays())

    def _apply(self, sender: str, message: FromParty) -> list[Reply]:
        match message:
            case Push() | Gradient() | Stop() | Checkpointed():
                return self._train(sender, message)
            case Hello():
                return self._hello(sender, message)
            case Labels():
                return self._take_labels(sender, message)
            case HeldOutPredictions():
                total = self._training(sender)[1].take(sender, message)
                return [] if total is None else [Reply(self._definition.settings.label_party, total)]
            case SealedMetrics():
                self._only_label_party(sender, "metrics")
                self._training(sender)[1].discard(sender, message.epoch)
                self.history[message.epoch] = message
                return []
            case BestEpoch():
                self._only_label_party(sender, "a best epoch")
                check_outcome(sender, self._definition.settings)
                self._check_trained(sender, "the best epoch")
                is_new = self._training(sender)[1].take_best(sender, message)
                return [Reply(other, message) for other in self._parties if is_new and other != sender]
            case Finished(model_mac):
                self._finish(sender, model_mac)
                return []

    def _train(self, sender: str, message: Push | Gradient | Stop | Checkpointed) -> list[Reply]:
        coordinator, held_out = self._training(sender)
        if isinstance(message, Stop) and message.no_gain:
            self._only_label_party(sender, "that held-out rows gain nothing")
            check_stops(sender, self._definition.settings)
        replies = coordinator.handle(sender, message)
        if isinstance(message, Checkpointed) and sender == self._definition.settings.label_party:
            held_out.forget(message.step)
        return replies

    def _hello(self, sender: str, hello: Hello) -> list[Reply]:
        self._membership.admit(sender, hello)
        is_label_party = sender == self._definition.settings.label_party
        told = self.labels.told if is_label_party else (0, b"")
        labels = [] if is_label_party else [Reply(sender, each) for each in self.labels.pieces]
        if self.coordinator is None or self._held_out is None:
            return [Reply(sender, Welcome(-1, (), *told)), *labels]
        replies = [Reply(sender, Welcome(self.coordinator.pushed(sender), tuple(self.history), *told)), *labels]
        if is_label_party:
            replies += [Reply(sender, total) for total in self._held_out.totals(hello.done)]
        replies += self.coordinator.resend(sender, hello.done)
        best = None if is_label_party else self._held_out.best
        return replies if best is None else [*replies, Reply(sender, best)]

    def _check_trained(self, sender: str, what: str) -> None:
        coordinator, _ = self._training(sender)
        left = coordinator.end - 1 - coordinator.served(sender)
        if left > 0:
            raise MessageRefused(f"party {sender!r} sent {what}, {left} steps before the end", Refusal.GAP)

    def _finish(self, sender: str, model_mac: bytes) -> None:
        self._check_trained(sender, "that it has finished")
        if self._finished.setdefault(sender, model_mac) != model_mac:
            raise MessageRefused(
                f"party {sender!r} finished before with another model; its files have changed", Refusal.CONFLICT
            )

    def _take_labels(self, sender: str, labels: Labels) -> list[Reply]:
        self._only_label_party(sender, "labels")
        agreed = self._membership.alignment
        if agreed is None:
            raise MessageRefused(f"party {sender!r} sent labels before saying hello", Refusal.INVALID)
        definition = self._definition
        check_labels(sender, labels, definition.settings, agreed, definition.largest_matrix)
        if not self.labels.take(sender, labels, pieces_of_labels(definition.settings, agreed, definition.piece_rows)):
            return []
        self._begin()
        return [Reply(party, labels) for party in self._parties if party != sender and self.incarnation(party)]

    def _begin(self) -> None:
        """Make what is trained, once all labels have come."""
        agreed, first = self._membership.alignment, self.labels.first
        if agreed is not None and first is not None and self.labels.complete:
            new = new_training(self._definition.settings, agreed, first, self._definition.piece_rows)
            self.coordinator, self._held_out = new

    def _training(self, sender: str) -> tuple[Coordinator, HeldOutSums]:
        if self.coordinator is None or self._held_out is None:
            raise MessageRefused(f"party {sender!r} is ahead: the labels have not come yet", Refusal.GAP)
        return self.coordinator, self._held_out

    def _only_label_party(self, sender: str, what: str) -> None:
        if sender != self._definition.settings.label_party:
            raise MessageRefused(
                f"party {sender!r} sent {what}; only {self._definition.settings.label_party!r} may",
                Refusal.NOT_PERMITTED,
            )

    def _arrays(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "format": _SNAPSHOT,
            "number": self._number,
            "membership": self._membership.facts(),
            "history": {epoch: each.sealed.hex() for epoch, each in self.history.items()},
            "finished": {party: digest.hex() for party, digest in self._finished.items()},
        }
        arrays: dict[str, Any] = {"facts": np.array(json.dumps(facts))}
        arrays |= self.labels.state()
        if self.coordinator is not None and self._held_out is not None:
            arrays |= self.coordinator.state() | self._held_out.state()
        return arrays

    def _restore(self, stored: bytes) -> None:
        arrays: Mapping[str, Any] = unpack_arrays(stored)
        facts = json.loads(str(arrays["facts"]))
        if facts.get("format") != _SNAPSHOT:
            raise StateCorrupt(
                "the stored run is of an older fdml; finish it with that one, or give the run a new name at every side"
            )
        self._membership.restore(facts["membership"])
        known = {int(epoch): bytes.fromhex(sealed) for epoch, sealed in facts["history"].items()}
        self.history = {epoch: SealedMetrics(epoch, sealed) for epoch, sealed in known.items()}
        self._finished = {party: bytes.fromhex(digest) for party, digest in facts["finished"].items()}
        agreed, definition = self._membership.alignment, self._definition
        if agreed is not None:
            self.labels.restore(arrays, pieces_of_labels(definition.settings, agreed, definition.piece_rows))
            self._begin()
        if self.coordinator is not None and self._held_out is not None:
            self.coordinator.restore(arrays)
            self._held_out.restore(arrays)
        self._number = int(facts["number"])
