"""How a command shows runs while they go on: live views on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from fdml.events import EpochDone, Event, Listener, Remark
from fdml.monitor.listeners import all_of, ignore_events
from fdml.monitor.live_comparison import LiveComparison
from fdml.monitor.live_terminal import LiveTerminal, can_be_redrawn, drawn
from fdml.monitor.terminal import RunTerminal, print_line, progress_display


@contextmanager
def epoch_progress(console: Console, total: int, title: str) -> Iterator[Listener]:
    """A listener that counts the epochs of several trainings, `total` of them; on a terminal with what is done."""
    if can_be_redrawn(console):
        view = LiveComparison(total, title)
        with drawn(console, view.__rich__):
            yield view
        return
    done, lock = 0, threading.Lock()
    with progress_display(console, total, title) as display:

        def listen(event: Event) -> None:
            nonlocal done
            if isinstance(event, EpochDone):
                with lock:
                    done += 1
                    display.move_to(done)

        yield listen


@contextmanager
def run_terminal(console: Console, party: str) -> Iterator[Listener]:
    """A listener that shows one party's part in a run: live on a terminal, in plain lines elsewhere."""
    if can_be_redrawn(console):
        with live_terminal(console) as listener:
            yield listener
        return
    with progress_display(console, 1, party) as display:  # until it is known how many epochs there are
        yield RunTerminal(console, display)


@contextmanager
def live_terminal(console: Console) -> Iterator[Listener]:
    """A listener that prints what happens at a side, with a live view below it where the terminal has one."""
    lines = RunTerminal(console)
    if not can_be_redrawn(console):
        yield lines
        return
    view = LiveTerminal()
    with drawn(console, view.__rich__):
        yield all_of(view, lines)


@contextmanager
def processes_terminal(console: Console, *, quiet: bool = False) -> Iterator[tuple[Listener, bool]]:
    """A listener for a run of processes, and whether it shows more of them than the lines they print.

    With `quiet` it shows nothing; what fails is raised.
    """

    def print_remark(event: Event) -> None:
        if isinstance(event, Remark):
            print_line(console, f"[{event.party}] {event.text}")

    if quiet or not can_be_redrawn(console):
        yield (ignore_events if quiet else print_remark), False
        return
    view = LiveTerminal()
    with drawn(console, view.__rich__):
        yield all_of(view, print_remark), True
