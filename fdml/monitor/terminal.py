"""Progress for a person: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fdml.events import EpochDone, Event, Listener

_LINES = 10
"""How many plain lines a whole job prints at most."""


@contextmanager
def progress(console: Console, total: int, what: str) -> Iterator[Listener]:
    """Show how many of `total` epochs are done while the block runs."""
    if not console.is_terminal:
        yield _counted(_PlainLines(console, total, what).advance)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield _counted(lambda: progress.advance(task))


def _counted(advance: Callable[[], None]) -> Listener:
    def hear(event: Event) -> None:
        if isinstance(event, EpochDone):
            advance()

    return hear


class _PlainLines:
    def __init__(self, console: Console, total: int, what: str) -> None:
        self._console = console
        self._total = total
        self._what = what
        self._done = 0
        self._started = time.monotonic()

    def advance(self) -> None:
        self._done += 1
        if self._done * _LINES // self._total > (self._done - 1) * _LINES // self._total:
            seconds = time.monotonic() - self._started
            self._console.print(f"{self._what}: {self._done} of {self._total} epochs, {seconds:.0f} s", highlight=False)
