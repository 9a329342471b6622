"""The figures of a run, epoch by epoch."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from textwrap import indent
from typing import Any, Literal, NamedTuple

import numpy as np

from fdml.events import Compared, ComparedVersion, EpochChosen, Evaluated, Event, Reliability, Stopped
from fdml.monitor.convergence import Convergence, convergence_of
from fdml.settings.choices import PAIRWISE, LossName, Task
from fdml.storage.atomic import write_file

Scheme = Literal["alone", "late fusion", "pooled", "joint"]
SCHEMES: tuple[Scheme, ...] = ("alone", "late fusion", "pooled", "joint")

_SYNC_SECONDS = 1.0
"""How often at most an epoch's figures are synced: it takes milliseconds, in which all parties wait."""
_METRIC_OF: dict[Task, str] = {"binary": "auc", "multiclass": "accuracy", "regression": "r2"}


def metric_of(task: Task, loss: LossName | None) -> str:
    """The metric of a task, beside its loss; of a regression R2, or by another loss than the squared D2."""
    if loss == PAIRWISE:
        return "group_auc"
    return "d2" if task == "regression" and loss not in (None, "squared") else _METRIC_OF[task]


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


class Gain(NamedTuple):
    """What one training brings over another on the same held-out rows; 95 % of resamples are from `low` to `high`."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class LearningCurve:
    """One model under one scheme, epoch by epoch."""

    model: str
    scheme: Scheme
    records: tuple[EpochRecord, ...]
    gains: Mapping[Scheme, Gain] = field(default_factory=dict)
    """Of joint training: what it brings over these, by the last epoch's metric."""
    reliability: Reliability | None = None
    """How well the last epoch's probabilities came true, with the last seed; None where that was not asked."""

    @property
    def last(self) -> EpochRecord:
        """The last epoch; no epoch is picked by its test figures."""
        return self.records[-1]

    @property
    def convergence(self) -> Convergence | None:
        """Whether this training has converged; None where there are too few epochs to tell."""
        return convergence_of([record.train_objective for record in self.records])


def mean_records(runs: Sequence[Sequence[EpochRecord]]) -> tuple[EpochRecord, ...]:
    """The mean over several runs of the same number of epochs, epoch by epoch."""
    measured = [each.name for each in fields(EpochRecord) if each.name != "epoch"]
    return tuple(
        EpochRecord(epochs[0].epoch, *(float(np.mean([getattr(each, name) for each in epochs])) for name in measured))
        for epochs in zip(*runs, strict=True)
    )


class HistoryFile:
    """The label party's figures in a JSON file, one row per epoch: a listener of `Evaluated`.

    An epoch that is evaluated again replaces its row. The file outlives the process, and a later start goes on from it.
    A power cut may take the epochs since the file was last synced, which the party's checkpoint may still know. The
    file is only for people: one that is damaged or gone stops no run, and is said.
    """

    kinds = frozenset((Evaluated, Compared, ComparedVersion, Reliability, EpochChosen, Stopped))
    """Of events that change what is known of the epochs."""

    def __init__(
        self,
        path: Path,
        *,
        known: Sequence[Evaluated] = (),
        remark: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`known` is what a checkpoint knows of earlier epochs; `remark` takes a sentence for a person."""
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._rows = read_history(path, remark)
        self._texts: dict[int, tuple[Evaluated, str]] = {}
        """Rows as they stand in the file: an epoch seldom changes once it is there."""
        self._synced_at = -math.inf
        self._is_synced = True
        self._ended_early = False
        lost = [each for each in known if each.epoch not in self._rows]
        if lost:
            self._rows |= {each.epoch: each for each in lost}
            self._write(synced=True)
            remark(f"{path.name} lacked {_epochs(each.epoch for each in lost)}; the checkpoint knew them")

    def lacking(self, last: int, *, each_epoch: bool) -> str:
        """Which epochs a whole run of `last` epochs has that are not in the file; empty if none."""
        if self._ended_early:
            last = max(self._rows, default=0)
        wanted = range(1, last + 1) if each_epoch else range(last, last + 1)
        missing = [epoch for epoch in wanted if epoch not in self._rows]
        return _epochs(missing) if missing and last else ""

    @property
    def last(self) -> Evaluated | None:
        """The last epoch that was evaluated, also by an earlier start."""
        with self._lock:
            return self._rows[max(self._rows)] if self._rows else None

    def __call__(self, event: Event) -> None:
        """Store an evaluation; it outlives the process on return."""
        if type(event) not in self.kinds:
            return
        self._ended_early |= isinstance(event, Stopped)
        with self._lock:
            match event:
                case Evaluated():
                    self._rows[event.epoch] = event
                case Compared() if event.epoch in self._rows:
                    self._rows[event.epoch] = replace(self._rows[event.epoch], compared=event)
                case ComparedVersion() if event.epoch in self._rows:
                    self._rows[event.epoch] = replace(self._rows[event.epoch], earlier=event)
                case Reliability() if event.epoch in self._rows:
                    self._rows[event.epoch] = replace(self._rows[event.epoch], reliability=event)
                case EpochChosen() if event.epoch in self._rows:
                    self._rows = {epoch: replace(row, chosen=epoch == event.epoch) for epoch, row in self._rows.items()}
                case _:
                    return
            is_due = self._clock() - self._synced_at >= _SYNC_SECONDS
            self._write(synced=is_due or not isinstance(event, Evaluated))

    def sync(self) -> None:
        """Make durable what is not yet."""
        with self._lock:
            if not self._is_synced:
                self._write(synced=True)

    def _write(self, *, synced: bool) -> None:
        rows = ",\n".join(self._text(self._rows[epoch]) for epoch in sorted(self._rows))
        write_file(self._path, f"[\n{rows}\n]\n".encode(), synced=synced)
        self._is_synced = synced
        if synced:
            self._synced_at = self._clock()

    def _text(self, row: Evaluated) -> str:
        known = self._texts.get(row.epoch)
        if known is None or known[0] is not row:
            shown = asdict(row)
            del shown["run"]  # the file is in the run's folder
            known = self._texts[row.epoch] = row, indent(json.dumps(shown, indent=1), " ")
        return known[1]


def read_history(path: Path, remark: Callable[[str], None] = lambda _: None) -> dict[int, Evaluated]:
    """The figures in a label party's file, by epoch; one that is no history is put aside."""
    if not path.is_file():
        return {}
    try:
        rows = [_evaluated_of(row) for row in json.loads(path.read_text(encoding="utf-8"))]
        return {int(row.epoch): row for row in rows}
    except (ValueError, TypeError) as error:
        renamed = path.with_name(f"{path.name}.damaged")
        path.replace(renamed)
        remark(f"{str(path)!r} was no history that fdml wrote ({error}); it is now {renamed.name!r}, and is begun anew")
        return {}


def _evaluated_of(row: dict[str, Any]) -> Evaluated:
    found = Evaluated(**row)
    alone, earlier, reliability = (row.get(name) for name in ("compared", "earlier", "reliability"))
    if alone is None and earlier is None and reliability is None:  # as all epochs but the last
        return found
    return replace(
        found,
        compared=None if alone is None else Compared(**alone),
        earlier=None if earlier is None else ComparedVersion(**earlier),
        reliability=None if reliability is None else _reliability_of(reliability),
    )


def _reliability_of(row: dict[str, Any]) -> Reliability:
    values: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in row.items()}
    return Reliability(**values)


def _epochs(numbers: Iterable[int]) -> str:
    """Epochs for a person: "epochs 2 to 4, 6"."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in spans]
    return ("epochs " if len(spans) > 1 or spans[0][0] != spans[0][1] else "epoch ") + ", ".join(texts)
