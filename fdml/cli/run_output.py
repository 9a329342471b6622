"""What a command says while a run goes on: live on a terminal, in plain lines, as JSON lines, or nearly nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from fdml.cli.output import stderr
from fdml.events import Listener
from fdml.monitor.event_lines import told_to
from fdml.monitor.json_log import JsonLog
from fdml.monitor.listeners import all_of, ignore_events
from fdml.monitor.log_lines import JsonLines, LogFormat, LogLevel, from_level
from fdml.monitor.run_displays import epoch_progress, live_terminal, run_terminal
from fdml.monitor.terminal import RunTerminal
from fdml.monitor.verbose_lines import VerboseLines


@dataclass(frozen=True)
class Said:
    """How much a command says, and in which form."""

    format: LogFormat = "text"
    level: LogLevel = "info"
    quiet: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.quiet and self.verbose:
            raise typer.BadParameter("--quiet and --verbose exclude each other; give one of them")

    @property
    def least(self) -> LogLevel:
        """The least that is said."""
        return "warning" if self.quiet else self.level


@contextmanager
def run_output(
    said: Said,
    *,
    party: str | None = None,
    run: str = "",
    live: bool = True,
    log: Path | None = None,
    report_to: Path | None = None,
) -> Iterator[Listener]:
    """A listener for all that happens: `party` is whose part of a run is shown, None at a server or for many runs.

    `live` is whether a terminal has a view of runs below the lines. `run` is the name of the run in JSON lines. `log`
    is a file for all events, `report_to` one for the process that has started this one.
    """
    with ExitStack() as stack:
        files: list[Listener] = []
        if log is not None:
            files.append(stack.enter_context(JsonLog(log)))
        if report_to is not None:
            files.append(told_to(stack.enter_context(JsonLog(report_to))))
        yield all_of(*files, stack.enter_context(_spoken(said, party, run, live=live)))


@contextmanager
def _spoken(said: Said, party: str | None, run: str, *, live: bool) -> Iterator[Listener]:
    if said.format == "json":
        yield from_level("debug" if said.verbose else said.least, JsonLines(stderr, run))
        return
    if said.least == "warning":
        yield from_level("warning", RunTerminal(stderr))
        return
    more: list[Listener] = [VerboseLines(stderr)] if said.verbose else []
    if not live:
        yield all_of(*more, RunTerminal(stderr))
        return
    with live_terminal(stderr) if party is None else run_terminal(stderr, party) as listener:
        yield all_of(*more, listener)


@contextmanager
def comparison_output(said: Said, epochs: int) -> Iterator[Listener]:
    """A listener for the trainings of a comparison, which have so many epochs together."""
    if said.quiet:
        yield ignore_events
        return
    with epoch_progress(stderr, epochs, "training") as listener:
        yield all_of(VerboseLines(stderr), listener) if said.verbose else listener
