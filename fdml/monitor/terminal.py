"""A run for a person: a progress bar on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fdml.events import (
    Aligned,
    Compared,
    ComparedVersion,
    Convergence,
    EpochChosen,
    EpochDone,
    Evaluated,
    Event,
    Finished,
    Joined,
    LargestPart,
    OfRun,
    PartyProgress,
    Refused,
    Released,
    Reliability,
    Remark,
    Scheduled,
    SchemeBegun,
    SchemeDone,
    StepDone,
    Stopped,
    Waiting,
)
from fdml.monitor.figures import CHOSEN, figures_text
from fdml.monitor.live_terminal import can_be_redrawn
from fdml.monitor.notebook import NotebookProgress
from fdml.protocol.quoting import shown

_PROGRESS_LINES = 10
"""Plain lines of progress that a whole job prints at most."""
_LONG_WAIT_SECONDS = 5.0
"""A shorter wait gets no plain line: every step has some."""
_MOST_REFUSALS = 100
"""Different refusals that are printed."""
_MOST_JOINS = 1000
"""Lines about one party that joins again and again."""


def print_line(console: Console, text: str) -> None:
    """Print lines of plain text as they are, however long; control characters are written out."""
    lines = "\n".join(shown(line, len(line)) for line in text.split("\n"))
    console.print(lines, highlight=False, markup=False, emoji=False, soft_wrap=True)


class ProgressDisplay(Protocol):
    """How far a job is."""

    def move_to(self, done: int, note: str = "") -> None:
        """Show that `done` units are done; `note` goes beside the count."""
        ...

    def expect(self, total: int) -> None:
        """The job has so many units."""
        ...

    def remark(self, note: str) -> None:
        """Show a note that lasts until the next one."""
        ...


class PlainProgress:
    """Lines for a log file, spread evenly over the job."""

    def __init__(
        self, console: Console, total: int, title: str, unit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._total = total
        self._title = title
        self._unit = unit
        self._clock = clock
        self._started = clock()
        self._done = 0

    def move_to(self, done: int, note: str = "") -> None:
        """Print a line if another tenth of the job is done."""
        before, self._done = self._done, done
        if done * _PROGRESS_LINES // self._total > before * _PROGRESS_LINES // self._total:
            seconds = self._clock() - self._started
            more = f", {note}" if note else ""
            print_line(self._console, f"{self._title}: {done} of {self._total} {self._unit}, {seconds:.0f} s{more}")

    def expect(self, total: int) -> None:
        """The job has so many units."""
        self._total = total

    def remark(self, note: str) -> None:
        """Print nothing: a log keeps what has long passed."""


class BarProgress:
    """A bar at the bottom of a terminal."""

    def __init__(self, progress: Progress, total: int, title: str) -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task(title, total=total, note="")

    def move_to(self, done: int, note: str = "") -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, note=note)

    def expect(self, total: int) -> None:
        """The bar is full after so many units."""
        self._progress.update(self._task, total=total)

    def remark(self, note: str) -> None:
        """Replace the text beside the bar."""
        self._progress.update(self._task, note=note, refresh=True)


@contextmanager
def progress_display(console: Console, total: int, title: str, unit: str = "epochs") -> Iterator[ProgressDisplay]:
    """A display for a job of `total` units, for as long as the block runs."""
    if console.is_jupyter:
        with closing(NotebookProgress(total, title, unit)) as bar:
            yield bar
        return
    if not can_be_redrawn(console):
        yield PlainProgress(console, total, title, unit)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}", markup=False), console=console, transient=True) as bars:
        yield BarProgress(bars, total, title)


_Who = tuple[str, str]
"""A run, which is empty where there is one alone, and a party."""


@dataclass
class _Wait:
    since: float
    printed_for: tuple[str, ...] = ()


class RunTerminal:
    """Prints what happens at one side of a run; progress only where there is a display for it.

    Steps and releases print nothing. The same refusal is printed once. A wait is printed once it is long. Lines of a
    server that stays up begin with the run that they are of.
    """

    def __init__(
        self,
        console: Console,
        display: ProgressDisplay | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._display = display
        self._clock = clock
        self._lock = threading.Lock()
        self._waits: dict[_Who, _Wait] = {}
        self._refusals: set[str] = set()
        self._joins: Counter[_Who] = Counter()
        self._evaluated: dict[_Who, Evaluated] = {}
        """The last of each party, or the chosen one."""
        self._by_epoch: dict[_Who, dict[int, Evaluated]] = {}
        self._run = ""
        """Of the event that is shown just now."""

    def __call__(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            self._run = event.run if isinstance(event, OfRun) else ""
            if not isinstance(event, Waiting | Released | Refused | Remark | LargestPart | PartyProgress):
                self._end_wait(self._who(event))
            self._show(event)
            if self._run and isinstance(event, Finished):
                self._forget(self._who(event))

    def _who(self, event: Event) -> _Who:
        return self._run, event.party

    def _forget(self, who: _Who) -> None:
        """A server that stays up keeps nothing of runs that are over."""
        for known in (self._waits, self._joins, self._evaluated, self._by_epoch):
            known.pop(who, None)

    def _show(self, event: Event) -> None:
        match event:
            case (
                StepDone() | Released() | LargestPart() | Reliability() | PartyProgress() | SchemeBegun() | SchemeDone()
            ):
                pass
            case EpochDone():
                self._show_epoch(event)
            case Evaluated():
                self._evaluated[self._who(event)] = event
                self._by_epoch.setdefault(self._who(event), {})[event.epoch] = event
            case EpochChosen():
                self._show_choice(event)
            case Convergence():
                if event.text:
                    self._print(event.text)
            case Compared():
                self._print(f"{event.text}; that took {event.seconds:.1f} s")
            case ComparedVersion():
                self._print(event.text)
            case Waiting():
                self._show_wait(event)
            case Refused():
                self._show_refusal(event.reason)
            case Remark():
                self._print(event.text)
            case Aligned():
                self._print(f"{event.shared:,} rows are shared by all, {event.train:,} of them to train on")
            case Scheduled():
                self._show_schedule(event)
            case Joined() if self._joins[self._who(event)] < _MOST_JOINS:
                self._joins[self._who(event)] += 1
                more = f"going on at step {event.resumed_at}" if event.resumed_at else "joined"
                self._print(f"{event.party}: {more}")
            case Joined():
                pass
            case Stopped():
                self._print(f"training ended before step {event.step}: {event.reason}")
            case Finished():
                self._show_end(event)

    def _show_schedule(self, event: Scheduled) -> None:
        if self._display is not None:
            self._display.expect(event.epochs)
        self._print(
            f"{event.party}: {event.epochs} epochs over {event.rows:,} rows in batches of {event.batch_size}, "
            f"{event.blocks} exchange{'s' * (event.blocks > 1)} an epoch, {event.value_bits} bits a prediction"
        )

    def _show_epoch(self, event: EpochDone) -> None:
        if self._display is not None:
            evaluated = self._evaluated.get(self._who(event))
            self._display.move_to(event.epoch, "" if evaluated is None else _epoch_text(evaluated))

    def _show_choice(self, event: EpochChosen) -> None:
        self._print(
            f"{event.party}: keeps the model of epoch {event.epoch}, which has the lowest loss of held-out rows"
        )
        chosen = self._by_epoch.get(self._who(event), {}).get(event.epoch)
        if chosen is not None:
            self._evaluated[self._who(event)] = chosen
            self._print(CHOSEN)

    def _show_wait(self, event: Waiting) -> None:
        wait = self._waits.setdefault(self._who(event), _Wait(self._clock()))
        seconds, names = self._clock() - wait.since, ", ".join(event.waits_for)
        if self._display is not None:
            self._display.remark(f"waits for {names}")
        if event.why:
            wait.printed_for = event.waits_for
            self._print(f"{event.party}: waiting for {event.seconds:.0f} s so far: {event.why}")
        elif seconds >= _LONG_WAIT_SECONDS and wait.printed_for != event.waits_for:
            wait.printed_for = event.waits_for
            self._print(f"{event.party}: waits for {names}, {seconds:.0f} s so far")

    def _end_wait(self, who: _Who) -> None:
        if self._waits.pop(who, None) is not None and self._display is not None:
            self._display.remark("")

    def _show_refusal(self, reason: str) -> None:
        if reason not in self._refusals and len(self._refusals) < _MOST_REFUSALS:
            self._refusals.add(reason)
            self._print(f"refused: {reason}")

    def _show_end(self, event: Finished) -> None:
        evaluated = self._evaluated.get(self._who(event))
        more = "" if evaluated is None else f"; {_epoch_text(evaluated)}"
        after = "" if event.seconds is None else f" after {event.seconds:.1f} s"
        self._print(f"{event.party}: finished{after}{more}")

    def _print(self, text: str) -> None:
        print_line(self._console, f"run {self._run!r}, {text}" if self._run else text)


def _epoch_text(event: Evaluated) -> str:
    return f"epoch {event.epoch}: {figures_text(event.test_loss, event.test_metric, next(iter(event.figures), ''))}"
