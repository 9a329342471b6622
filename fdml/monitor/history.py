"""The figures of a run, epoch by epoch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fdml.events import Evaluated, Event
from fdml.settings import Task
from fdml.storage.disk import FolderDisk

Scheme = Literal["alone", "late fusion", "pooled", "joint"]
SCHEMES: tuple[Scheme, ...] = ("alone", "late fusion", "pooled", "joint")

METRIC_OF: dict[Task, str] = {"binary": "auc", "multiclass": "accuracy", "regression": "r2"}
"""What a task is measured by besides its loss."""


@dataclass(frozen=True)
class EpochRecord:
    """A run's figures at the end of an epoch."""

    epoch: int
    seconds: float
    """Of training since its start, without evaluation."""
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
        """The figures of the last epoch; no epoch is picked by its test figures."""
        return self.records[-1]


def mean_records(runs: Sequence[Sequence[EpochRecord]]) -> tuple[EpochRecord, ...]:
    """The mean of several runs of equally many epochs, epoch by epoch."""
    measured = [each.name for each in fields(EpochRecord) if each.name != "epoch"]
    return tuple(
        EpochRecord(epochs[0].epoch, *(float(np.mean([getattr(each, name) for each in epochs])) for name in measured))
        for epochs in zip(*runs, strict=True)
    )


class HistoryFile:
    """Listens for evaluations and keeps them in a JSON file, epoch by epoch; the file survives any crash."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        self._epochs: dict[int, dict[str, Any]] = {each["epoch"]: each for each in known}

    def __call__(self, event: Event) -> None:
        """Write down an evaluation; the file is replaced as a whole."""
        if not isinstance(event, Evaluated):
            return
        figures = asdict(event)
        del figures["party"]
        self._epochs[event.epoch] = figures
        rows = [self._epochs[epoch] for epoch in sorted(self._epochs)]
        FolderDisk(self._path.parent).replace(self._path.name, (json.dumps(rows, indent=1) + "\n").encode())
