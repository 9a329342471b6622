"""A party's saved state: what a restarted process goes on from. Crash recovery of a party begins here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import StateCorrupt
from fdml.events import Evaluated
from fdml.protocol.messages import FromParty, Stop
from fdml.protocol.wire import decode_from_party, encode_from_party
from fdml.storage.arrays import pack_arrays, unpack_arrays
from fdml.storage.disk import Disk
from fdml.storage.facts import check_facts, damaged
from fdml.storage.two_slots import TwoSlots

_CHECKPOINT = "checkpoint"
_INCARNATION = "incarnation"
_RESULT = "result"
_UNACKNOWLEDGED = "unacknowledged/"
_SCORE = "held_out_score/"
_HEAD = "head_at/"

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Progress:
    """What a session remembers besides its worker."""

    seconds: float = 0.0
    """Of training, over all starts."""
    pending: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """By epoch: training seconds and mean training loss, until the held-out rows have been scored."""
    evaluations: int = 0
    """How often the held-out rows were predicted for others."""
    history: tuple[Evaluated, ...] = ()
    """At the label party, what it has found so far."""
    losses: tuple[float, ...] = ()
    """At the label party, the mean training loss of every epoch so far."""
    score: tuple[int, NDArray[np.floating[Any]]] | None = None
    """At the label party: the epoch that would be kept by now, and its scores of the held-out rows."""
    heads: Mapping[int, NDArray[np.floating[Any]]] = field(default_factory=dict)
    """At the label party, by pending epoch: the parameters that the head had, where the run has one."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything a party needs to go on from one step."""

    facts: Mapping[str, str]
    """What the state belongs to; it must be the same when it is loaded again."""
    step: int
    """The last step that is done; -1 before the first."""
    worker: Arrays
    progress: Progress
    unacknowledged: tuple[FromParty, ...] = ()
    """Gradients, held-out predictions, metrics and stops that the server may not have yet: a restart would not make
    them again."""


def first_messages(checkpoint: Checkpoint | None, pushes: Iterable[FromParty]) -> Iterator[FromParty]:
    """What a start sends first: what the server may not have, then the pushes, and that they stop only after them."""
    left = () if checkpoint is None else checkpoint.unacknowledged
    yield from (each for each in left if not isinstance(each, Stop))
    yield from pushes
    yield from (each for each in left if isinstance(each, Stop))


@dataclass(frozen=True)
class FinishedModel:
    """The result of a party that has trained to the end."""

    facts: Mapping[str, str]
    model_hash: bytes
    reported: bool
    """Whether the server is known to know."""


@dataclass(frozen=True)
class SavedState:
    """What earlier starts of a party have left behind, and the number of this start."""

    incarnation: int = 1
    checkpoint: Checkpoint | None = None
    result: FinishedModel | None = None

    def check_facts(self, facts: Mapping[str, str]) -> None:
        """Raise unless the checkpoint belongs to these facts."""
        known = {} if self.checkpoint is None else self.checkpoint.facts
        check_facts(known, facts)


class CheckpointStore:
    """A party's checkpoints and result on its disk. The newest checkpoint but one is always whole, too."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._slots = TwoSlots(disk, _CHECKPOINT)

    def load(self) -> SavedState:
        """Count one more start of this party, durably, and give what earlier ones have saved."""
        number = 1 + self._starts()
        self._disk.replace(_INCARNATION, str(number).encode())
        stored = self._slots.load()
        return SavedState(number, None if stored is None else _read(stored), self.result())

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; durable on return."""
        self._slots.save(_written(checkpoint))

    def save_result(self, result: FinishedModel) -> None:
        """Write the result; durable on return."""
        content = {"facts": dict(result.facts), "model": result.model_hash.hex(), "reported": result.reported}
        self._disk.replace(_RESULT, json.dumps(content).encode())

    def clear(self) -> None:
        """Start over; the count of starts goes on, so that older processes stay shut out."""
        self._slots.clear()
        self._disk.remove(_RESULT)
        try:
            self._starts()
        except StateCorrupt:  # a server that starts over as well knows no older processes
            self._disk.remove(_INCARNATION)

    def result(self) -> FinishedModel | None:
        """The result of an earlier start, if one has finished."""
        raw = self._disk.read(_RESULT)
        if raw is None:
            return None
        try:
            known = json.loads(raw)
            return FinishedModel(dict(known["facts"]), bytes.fromhex(known["model"]), bool(known["reported"]))
        except (ValueError, TypeError, KeyError) as error:
            raise damaged(_RESULT, error) from None

    def _starts(self) -> int:
        """How often this party was started before."""
        before = self._disk.read(_INCARNATION)
        if before is not None and not before.isdigit():
            raise damaged(_INCARNATION, f"{len(before)} bytes that are no number")
        return 0 if before is None else int(before)


def _written(checkpoint: Checkpoint) -> bytes:
    progress = checkpoint.progress
    facts = {
        "facts": dict(checkpoint.facts),
        "step": checkpoint.step,
        "seconds": progress.seconds,
        "pending": dict(progress.pending),
        "evaluations": progress.evaluations,
        "history": [asdict(each) for each in progress.history],
        "losses": list(progress.losses),
    }
    messages = {
        f"{_UNACKNOWLEDGED}{number}": np.frombuffer(encode_from_party(message), np.uint8)
        for number, message in enumerate(checkpoint.unacknowledged)
    }
    score = {} if progress.score is None else {f"{_SCORE}{progress.score[0]}": progress.score[1]}
    heads = {f"{_HEAD}{epoch}": theta for epoch, theta in progress.heads.items()}
    return pack_arrays({"facts": np.array(json.dumps(facts)), **messages, **score, **heads, **checkpoint.worker})


def _read(stored: bytes) -> Checkpoint:
    arrays = unpack_arrays(stored)
    facts = json.loads(str(arrays.pop("facts")))
    scores = [(int(key.removeprefix(_SCORE)), arrays.pop(key)) for key in list(arrays) if key.startswith(_SCORE)]
    heads = {int(key.removeprefix(_HEAD)): arrays.pop(key) for key in list(arrays) if key.startswith(_HEAD)}
    keys = sorted((key for key in arrays if key.startswith(_UNACKNOWLEDGED)), key=_number)
    messages = tuple(decode_from_party(arrays.pop(key).tobytes()) for key in keys)
    pending = {int(epoch): (float(seconds), float(loss)) for epoch, (seconds, loss) in facts["pending"].items()}
    history = tuple(Evaluated(**each) for each in facts.get("history", ()))
    losses = tuple(facts.get("losses", ()))
    score = scores[0] if scores else None
    progress = Progress(facts["seconds"], pending, facts["evaluations"], history, losses, score, heads)
    return Checkpoint(facts["facts"], facts["step"], arrays, progress, messages)


def _number(key: str) -> int:
    return int(key.removeprefix(_UNACKNOWLEDGED))
