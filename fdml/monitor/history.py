"""The figures of a run, epoch by epoch."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

import numpy as np

from fdml.errors import StateCorrupt
from fdml.events import Evaluated, Event
from fdml.settings import Task
from fdml.storage.atomic import write_file

Scheme = Literal["alone", "late fusion", "pooled", "joint"]
SCHEMES: tuple[Scheme, ...] = ("alone", "late fusion", "pooled", "joint")

METRIC_OF: dict[Task, str] = {"binary": "auc", "multiclass": "accuracy", "regression": "r2"}
"""The metric of a task, beside its loss."""


@dataclass(frozen=True)
class EpochRecord:
    """Figures of one epoch."""

    epoch: int
    seconds: float
    """Training time since the start, without evaluation."""
    train_objective: float
    """Mean training loss plus the parties' regularisers."""
    test_loss: float
    test_metric: float


@dataclass(frozen=True)
class LearningCurve:
    """One model under one scheme, epoch by epoch."""

    model: str
    scheme: Scheme
    records: tuple[EpochRecord, ...]

    @property
    def last(self) -> EpochRecord:
        """The last epoch; no epoch is picked by its test figures."""
        return self.records[-1]


def mean_records(runs: Sequence[Sequence[EpochRecord]]) -> tuple[EpochRecord, ...]:
    """The mean over several runs of the same number of epochs, epoch by epoch."""
    measured = [each.name for each in fields(EpochRecord) if each.name != "epoch"]
    return tuple(
        EpochRecord(epochs[0].epoch, *(float(np.mean([getattr(each, name) for each in epochs])) for name in measured))
        for epochs in zip(*runs, strict=True)
    )


class HistoryFile:
    """The label party's figures in a JSON file, one row per epoch: a listener of `Evaluated`.

    An epoch that is evaluated again replaces its row. The file survives any crash, and a later start goes on from it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._rows = read_history(path)

    @property
    def last(self) -> Evaluated | None:
        """The last epoch that was evaluated, also by an earlier start."""
        with self._lock:
            return self._rows[max(self._rows)] if self._rows else None

    def __call__(self, event: Event) -> None:
        """Store an evaluation; it is durable on return."""
        if not isinstance(event, Evaluated):
            return
        with self._lock:
            self._rows[event.epoch] = event
            rows = [asdict(self._rows[epoch]) for epoch in sorted(self._rows)]
            write_file(self._path, (json.dumps(rows, indent=1) + "\n").encode())


def read_history(path: Path) -> dict[int, Evaluated]:
    """The figures in a label party's file, by epoch; none where there is no file."""
    if not path.is_file():
        return {}
    try:
        rows = [Evaluated(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, TypeError) as error:
        raise StateCorrupt(
            f"{str(path)!r} is not a history that fdml wrote ({error}); move it away and run the same command again"
        ) from None
    return {row.epoch: row for row in rows}
