"""A run's figures for trackers of experiments: which ones, under which names, and a thread that hands them over.

A tracker gets what `history.json` has anyway, and lags. One that fails or hangs stops no run: it is said, and left.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from fdml.events import Compared, ComparedVersion, EpochDone, Evaluated, Event, Finished, StepDone

CLOSE_SECONDS = 20.0
"""How long the end of a run waits for a tracker."""
_LOSSES = {"train_loss": "train/loss", "test_loss": "held_out/loss", "seconds": "train/seconds"}


class Tracker(Protocol):
    """Where figures go. Every method raises `OSError` if it cannot."""

    def write(self, epoch: int, figures: Mapping[str, float]) -> None:
        """Take figures of an epoch; those that an earlier start has given are not taken twice."""

    def close(self, *, finished: bool) -> None:
        """Nothing more comes; `finished` is False if the run was stopped before its end."""


class Tracked:
    """A listener that turns events into figures, and hands them to one tracker in a thread of its own."""

    def __init__(self, name: str, open_tracker: Callable[[], Tracker], remark: Callable[[str], None]) -> None:
        """`open_tracker` is called in the thread, as it may take seconds; `remark` takes a sentence for a person."""
        self._name = name
        self._remark = remark
        self._lags = EpochLags()
        self._has_finished = False
        self._waiting: queue.SimpleQueue[tuple[int, dict[str, float]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(open_tracker,), name=f"tracker {name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Tracked:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, event: Event) -> None:
        """Note one event; it waits for nobody."""
        self._has_finished |= isinstance(event, Finished)
        found = self._lags.take(event) if isinstance(event, (StepDone, EpochDone)) else figures_of(event)
        if found is not None and found[1]:
            self._waiting.put(found)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait until the tracker has everything, though not for ever."""
        self._waiting.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._remark(f"{self._name} has not taken all figures of this run within {seconds:g} s; history.json has")

    def _run(self, open_tracker: Callable[[], Tracker]) -> None:
        try:
            tracker = open_tracker()
            while (found := self._waiting.get()) is not None:
                tracker.write(*found)
            tracker.close(finished=self._has_finished)
        except OSError as error:
            self._remark(f"{self._name} gets no more figures of this run ({error}); the run goes on, see [track]")


class EpochLags:
    """Mean and largest lag of each epoch of this party."""

    def __init__(self) -> None:
        self._steps = self._sum = self._largest = 0

    def take(self, event: StepDone | EpochDone) -> tuple[int, dict[str, float]] | None:
        """Count a step, or give the figures of an epoch and begin with the next."""
        if isinstance(event, StepDone):
            self._steps += 1
            self._sum += event.lag
            self._largest = max(self._largest, event.lag)
            return None
        if not self._steps:
            return None
        found = {"lag/mean": self._sum / self._steps, "lag/largest": float(self._largest)}
        self._steps = self._sum = self._largest = 0
        return event.epoch, found


def figures_of(event: Event) -> tuple[int, dict[str, float]] | None:
    """An epoch and its figures by name, without those that are not defined; None where an event has none."""
    found: dict[str, float | None]
    match event:
        case Evaluated():
            found = {title: getattr(event, name) for name, title in _LOSSES.items()}
            found |= {f"held_out/{name}": value for name, value in event.figures.items()}
        case Compared(metric=metric):
            found = {f"alone/{name}": value for name, value in event.figures.items()}
            found |= _gain("over_alone", metric, event)
        case ComparedVersion(metric=metric):
            found = {f"earlier/{name}": value for name, value in event.figures.items()}
            found |= _gain("over_earlier", metric, event)
        case _:
            return None
    return event.epoch, {name: each for name, each in found.items() if each is not None and math.isfinite(each)}


def _gain(over: str, metric: str, event: Compared | ComparedVersion) -> dict[str, float | None]:
    return {
        f"gain_{over}/{metric}": event.gain,
        f"gain_{over}/{metric}_low": event.low,
        f"gain_{over}/{metric}_high": event.high,
    }
