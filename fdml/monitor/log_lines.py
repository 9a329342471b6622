"""What a side says while it runs, for collectors of logs: how much of it, and as text or one JSON object a line."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from rich.console import Console

from fdml.events import (
    EpochDone,
    Event,
    LargestPart,
    Listener,
    PartyProgress,
    Refused,
    Released,
    StepDone,
    Stopped,
    Waiting,
)
from fdml.monitor.json_log import plain_values
from fdml.monitor.terminal import print_line

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning"]
LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
"""From the one that says most."""


def level_of(event: Event) -> LogLevel:
    """How much an event matters to someone who reads a log."""
    match event:
        case Refused() | Stopped():
            return "warning"
        case Waiting(why=why):
            return "warning" if why else "debug"
        case StepDone() | Released() | EpochDone() | LargestPart() | PartyProgress():
            return "debug"
        case _:
            return "info"


def from_level(least: LogLevel, listener: Listener) -> Listener:
    """A listener that hears only what matters at least so much."""
    wanted = LEVELS[LEVELS.index(least) :]
    return lambda event: listener(event) if level_of(event) in wanted else None


class JsonLines:
    """Prints every event as one JSON object: time, level, event, run, party, the step that the party is at, fields."""

    def __init__(
        self,
        console: Console,
        run: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`run` is the name of the run, where there is one alone."""
        self._console = console
        self._run = run
        self._clock = clock
        self._steps: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Print one line."""
        fields: dict[str, Any] = plain_values(asdict(event))
        run, party = fields.pop("run", "") or self._run, fields.pop("party")
        now = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        with self._lock:
            if isinstance(event, StepDone):
                self._steps[run, party] = event.step
            step = fields.pop("step", self._steps.get((run, party)))
            line = {
                "time": now,
                "level": level_of(event),
                "event": type(event).__name__,
                "run": run,
                "party": party,
                "step": step,
                **fields,
            }
            print_line(self._console, json.dumps(line))
