"""A run at the bottom of a terminal while it goes on: who waits for whom, epochs, figures, time left.

It listens to events, which only move numbers here. A thread of its own draws them, four times a second.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fdml.events import (
    Evaluated,
    Event,
    Finished,
    Joined,
    OfRun,
    PartyProgress,
    Scheduled,
    StepDone,
    Waiting,
)
from fdml.monitor.figures import figures_text
from fdml.monitor.live import duration
from fdml.protocol.certificates import SERVER
from fdml.protocol.quoting import shown

DRAWN_EACH_SECOND = 4
_RATE_SECONDS = 20.0
"""The time that is left goes by the speed of so many last seconds."""
_LEAST_SECONDS = 2.0
"""A shorter time says nothing of the speed."""
_NOTED_SECONDS = 1.0
"""A shorter wait is not shown: every step has some."""
_LATE_SECONDS = 30.0
"""A longer wait is red."""
_MOST_RUNS, _MOST_PARTIES = 4, 12
_BAR = 24
_LONGEST_NAME = 40


def can_be_redrawn(console: Console) -> bool:
    """Whether a person looks at a terminal that can move its cursor; elsewhere there are plain lines."""
    return console.is_interactive and not console.is_jupyter and not os.environ.get("CI")


@contextmanager
def drawn(console: Console, view: Callable[[], RenderableType]) -> Iterator[None]:
    """Draw a view at the bottom of the terminal, for as long as the block runs; it leaves no trace."""
    with Live(
        get_renderable=view,
        console=console,
        refresh_per_second=DRAWN_EACH_SECOND,
        transient=True,
    ):
        yield


@dataclass
class _Party:
    """What is known of one party of a run."""

    step: int = 0
    state: str = ""
    waits_for: tuple[str, ...] = ()
    since: float = 0.0
    """When it began to wait."""


@dataclass
class _Run:
    """What is known of one run."""

    steps: int = 0
    epochs: int = 0
    parties: dict[str, _Party] = field(default_factory=dict)
    evaluated: Evaluated | None = None
    samples: deque[tuple[float, int]] = field(default_factory=deque)
    """Moments, and the steps of the slowest party at each."""

    def party(self, name: str) -> _Party:
        return self.parties.setdefault(name, _Party())

    @property
    def slowest(self) -> int:
        """Steps that all parties have done."""
        return min((each.step for each in self.parties.values()), default=0)

    def seconds_left(self, now: float) -> float | None:
        """By the speed of the last seconds; None where that says nothing."""
        if not self.slowest:  # what comes before the first step says nothing of the speed
            return None
        self.samples.append((now, self.slowest))
        while len(self.samples) > 2 and now - self.samples[0][0] > _RATE_SECONDS:
            self.samples.popleft()
        began, before = self.samples[0]
        done = self.slowest - before
        if done <= 0 or now - began < _LEAST_SECONDS:
            return None
        return max(0, self.steps - self.slowest) * (now - began) / done


class LiveTerminal:
    """A listener, and the view of what it has heard: a line for each party, and one for the whole run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def __call__(self, event: Event) -> None:
        """Note one event."""
        with self._lock:
            self._note(event)

    def _note(self, event: Event) -> None:
        run = event.run if isinstance(event, OfRun) else ""
        match event:
            case StepDone(party, step):
                self._moved(self._run(run).party(party), step + 1)
            case Scheduled(party, epochs, _, blocks):
                known = self._run(run)
                known.epochs, known.steps = epochs, epochs * blocks
                known.party(party).state = "training"
            case Joined(party, step):
                self._moved(self._run(run).party(party), step)
            case PartyProgress(party, step, steps, epochs, state, names):
                known = self._run(run)
                known.steps, known.epochs = steps, epochs
                place = known.party(party)
                place.step, place.state = step, state
                self._waits(place, names)
                self._forget_if_over(run)
            case Waiting(party, names) if party != SERVER:  # who is missing at a server is said in lines
                self._waits(self._run(run).party(party), names)
            case Evaluated():
                self._run(run).evaluated = event
            case Finished(party):
                place = self._run(run).party(party)
                place.state, place.waits_for = "finished", ()
                self._forget_if_over(run)
            case _:
                pass

    def _run(self, name: str) -> _Run:
        return self._runs.setdefault(name, _Run())

    @staticmethod
    def _moved(party: _Party, step: int) -> None:
        party.step, party.waits_for = max(step, party.step), ()
        party.state = "training"

    def _waits(self, party: _Party, names: tuple[str, ...]) -> None:
        if names and not party.waits_for:
            party.since = self._clock()
        party.waits_for = names

    def _forget_if_over(self, run: str) -> None:
        """A server that stays up shows what is not over."""
        if run and all(each.state == "finished" for each in self._run(run).parties.values()):
            del self._runs[run]

    def __rich__(self) -> RenderableType:
        """The view of now."""
        with self._lock:
            runs = list(self._runs.items())
            parts = [part for name, run in runs[-_MOST_RUNS:] for part in self._run_view(name, run)]
        if len(runs) > _MOST_RUNS:
            parts.append(Text(f"and {len(runs) - _MOST_RUNS} more runs", style="dim"))
        return Group(*parts)

    def _run_view(self, name: str, run: _Run) -> Iterator[RenderableType]:
        if name:
            yield Text(f"run {shown(name, _LONGEST_NAME)}", style="bold")
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="bold")
        table.add_column(width=_BAR)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(overflow="ellipsis", no_wrap=True)
        for party, place in list(run.parties.items())[:_MOST_PARTIES]:
            bar = ProgressBar(total=max(run.steps, 1), completed=place.step, width=_BAR)
            table.add_row(Text(shown(party, _LONGEST_NAME)), bar, _epoch(run, place), self._doing(place))
        yield table
        if len(run.parties) > _MOST_PARTIES:
            yield Text(f"and {len(run.parties) - _MOST_PARTIES} more parties", style="dim")
        if line := self._whole(run):
            yield Text(line, style="dim", no_wrap=True, overflow="ellipsis")

    def _doing(self, party: _Party) -> Text:
        waited = self._clock() - party.since
        if not party.waits_for or waited < _NOTED_SECONDS:
            return Text(shown(party.state, _LONGEST_NAME), style="green" if party.state == "finished" else "")
        names = ", ".join(shown(each, _LONGEST_NAME) for each in party.waits_for)
        return Text(f"waits for {names}, {duration(waited)}", style="red" if waited > _LATE_SECONDS else "yellow")

    def _whole(self, run: _Run) -> str:
        left = run.seconds_left(self._clock())
        found = run.evaluated
        parts = [
            "" if found is None else f"epoch {found.epoch}: {_figures(found)}",
            "" if left is None or run.slowest >= run.steps else f"about {duration(left)} left",
        ]
        return "; ".join(part for part in parts if part)


def _figures(event: Evaluated) -> str:
    return figures_text(event.test_loss, event.test_metric, next(iter(event.figures), ""))


def _epoch(run: _Run, party: _Party) -> str:
    if not run.epochs or not run.steps:
        return ""
    return f"epoch {min(party.step * run.epochs // run.steps + 1, run.epochs)}/{run.epochs}"
