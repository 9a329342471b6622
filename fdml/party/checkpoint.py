"""What a party needs to go on after a crash: its state in two generations, and how often it was started."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import StateCorrupt
from fdml.party.loop import Worker
from fdml.protocol.messages import FromParty
from fdml.protocol.wire import decode_from_party, encode_from_party
from fdml.storage.disk import Disk
from fdml.storage.two_slots import TwoSlots

_INCARNATION = "incarnation"
_RESULT = "result"
_UNACKNOWLEDGED = "letter/"


@dataclass
class SessionProgress:
    """What a party remembers besides its worker: the time it has trained, and figures waiting for a verdict."""

    seconds: float = 0.0
    pending: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By epoch: training seconds and mean training loss, until the held-out rows have been evaluated."""
    unacknowledged: list[FromParty] = field(default_factory=list)
    """Gradients, trials and metrics that the server may not have yet: a restart would not make them again."""
    trials: int = 0
    """How often the held-out rows were predicted for others."""


class CheckpointStore:
    """Saves a party's state every so often. `facts` must be the same when it is loaded again."""

    def __init__(
        self, disk: Disk, facts: Mapping[str, str], seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._disk = disk
        self._facts = dict(facts)
        self._generations = TwoSlots(disk, "checkpoint")
        self._seconds = seconds
        self._clock = clock
        self._last = clock()
        self._kept = [-1, -1]
        """The steps of the older and the newer generation; -1 where it is not known."""

    def next_incarnation(self) -> int:
        """Count one more start of this party; durable on return."""
        before = self._disk.read(_INCARNATION)
        number = 1 + (0 if before is None else int(before))
        self._disk.replace(_INCARNATION, str(number).encode())
        return number

    def load(self, diary: SessionProgress) -> dict[str, NDArray[Any]] | None:
        """The worker's newest state, if there is one; the diary is brought up to it."""
        stored = self._generations.load()
        if stored is None:
            return None
        with np.load(io.BytesIO(stored), allow_pickle=False) as archive:
            arrays = dict(archive)
        facts = json.loads(str(arrays.pop("facts")))
        if facts["run"] != self._facts:
            changed = [key for key, value in self._facts.items() if facts["run"].get(key) != value]
            raise StateCorrupt(
                f"the saved state belongs to another {' and '.join(changed)}; put it back, or start over with --fresh"
            )
        diary.seconds = facts["seconds"]
        diary.pending = {int(epoch): tuple(figures) for epoch, figures in facts["pending"].items()}
        diary.trials = facts["trials"]
        diary.unacknowledged = [
            decode_from_party(arrays.pop(key).tobytes())
            for key in sorted((key for key in arrays if key.startswith(_UNACKNOWLEDGED)), key=_number)
        ]
        self._kept = [-1, int(arrays["position"][0]) - 1]
        return arrays

    def after_step(self, worker: Worker, diary: SessionProgress) -> int:
        """Save if it is time; says up to which step no total will ever be needed again."""
        if worker.finished or self._clock() - self._last >= self._seconds:
            self._save(worker, diary)
            self._last = self._clock()
        return self._kept[0]

    def _save(self, worker: Worker, diary: SessionProgress) -> None:
        facts = {
            "run": self._facts,
            "seconds": diary.seconds,
            "pending": diary.pending,
            "trials": diary.trials,
        }
        unacknowledged = {
            f"{_UNACKNOWLEDGED}{number}": np.frombuffer(encode_from_party(letter), np.uint8)
            for number, letter in enumerate(diary.unacknowledged)
        }
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, facts=np.array(json.dumps(facts)), **unacknowledged, **worker.state())
        self._generations.save(buffer.getvalue())
        self._kept = [self._kept[1], worker.step - 1]

    def note_result(self, model_hash: bytes) -> None:
        """The party has trained to the end."""
        self._write_result(model_hash, stored=False)

    def result(self) -> bytes | None:
        """The hash of the finished model, if this run was finished before."""
        found = self._read_result()
        return None if found is None else bytes.fromhex(found["model"])

    def mark_reported(self, model_hash: bytes) -> None:
        """The server knows that the party has finished: there is nothing left to say."""
        self._write_result(model_hash, stored=True)

    @property
    def is_stored(self) -> bool:
        """Whether the server is known to know that the party has finished."""
        found = self._read_result()
        return found is not None and bool(found["stored"])

    def _write_result(self, model_hash: bytes, *, stored: bool) -> None:
        content = {"facts": self._facts, "model": model_hash.hex(), "stored": stored}
        self._disk.replace(_RESULT, json.dumps(content).encode())

    def _read_result(self) -> dict[str, Any] | None:
        raw = self._disk.read(_RESULT)
        found: dict[str, Any] | None = None if raw is None else json.loads(raw)
        return found if found is not None and found["facts"] == self._facts else None


def forget_training(disk: Disk) -> None:
    """Start over; the count of starts goes on, so that older processes stay shut out."""
    TwoSlots(disk, "checkpoint").clear()
    disk.remove(_RESULT)


def _number(key: str) -> int:
    return int(key.removeprefix(_UNACKNOWLEDGED))
