"""A comparison at the bottom of a terminal while it goes on: what is trained, what is done, time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fdml.events import EpochDone, Event, SchemeBegun, SchemeDone
from fdml.monitor.live import duration

_BAR = 24
_MOST_DONE = 8
"""Trainings that are shown with their figures: the last ones."""


class LiveComparison:
    """A listener, and the view of what it has heard: the trainings that are done, and how far all of them are."""

    def __init__(self, epochs: int, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`epochs` is how many all trainings have together."""
        self._epochs = epochs
        self._title = title
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._count = 0
        self._now: SchemeBegun | None = None
        self._done: list[SchemeDone] = []

    def __call__(self, event: Event) -> None:
        """Note one event."""
        with self._lock:
            match event:
                case EpochDone():
                    self._count += 1
                case SchemeBegun():
                    self._now = event
                case SchemeDone():
                    self._done.append(event)
                case _:
                    pass

    def __rich__(self) -> RenderableType:
        """The view of now."""
        with self._lock:
            done, now, count = self._done[-_MOST_DONE:], self._now, self._count
        figures = Table.grid(padding=(0, 2))
        for each in done:
            name = f"{each.model} {each.scheme}, seed {each.seed}"
            figures.add_row(
                Text(name), f"test loss {each.test_loss:.4f}", f"metric {each.test_metric:.4f}", style="dim"
            )
        bar = Table.grid(padding=(0, 2))
        what = "" if now is None else f"{now.model} {now.scheme}, seed {now.seed}"
        bar.add_row(
            Text(self._title, style="bold"),
            ProgressBar(total=max(self._epochs, 1), completed=count, width=_BAR),
            f"{count}/{self._epochs} epochs",
            Text(what),
            self._left(count),
        )
        return Group(figures, bar) if done else bar

    def _left(self, count: int) -> str:
        passed = self._clock() - self._began
        if not count or count >= self._epochs or passed <= 0.0:
            return ""
        return f"about {duration((self._epochs - count) * passed / count)} left"
