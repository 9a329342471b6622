"""More of a run in plain lines, for `--verbose`: every epoch, every wait, every training of a comparison."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rich.console import Console

from fdml.events import EpochDone, Evaluated, Event, OfRun, PartyProgress, SchemeBegun, SchemeDone, Waiting
from fdml.monitor.figures import figures_text
from fdml.monitor.terminal import print_line


class VerboseLines:
    """Prints what `RunTerminal` leaves out, each line with the seconds since it began; steps print nothing here too."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._waits: dict[tuple[str, str], tuple[str, ...]] = {}

    def __call__(self, event: Event) -> None:
        """Print one event, if there is more to say of it."""
        with self._lock:
            text = self._text(event)
            if text:
                run = f"run {event.run!r}, " if isinstance(event, OfRun) and event.run else ""
                print_line(self._console, f"{self._clock() - self._began:.1f} s: {run}{text}")

    def _text(self, event: Event) -> str:
        match event:
            case EpochDone(party, epoch):
                return f"{party}: epoch {epoch} is done"
            case Evaluated(party=party, epoch=epoch):
                figures = figures_text(event.test_loss, event.test_metric, next(iter(event.figures), ""))
                loss = "" if event.train_loss is None else f", training loss {event.train_loss:.4f}"
                return f"{party}: epoch {epoch}: {figures}{loss}"
            case Waiting(party, names, why):
                return "" if why else f"{party}: waits for {', '.join(names)}"
            case PartyProgress():
                return self._progress(event)
            case SchemeBegun(_, model, scheme, seed):
                return f"{model} {scheme}, seed {seed}: training"
            case SchemeDone(_, model, scheme, seed, loss, metric):
                return f"{model} {scheme}, seed {seed}: test loss {loss:.4f}, test metric {metric:.4f}"
            case _:
                return ""

    def _progress(self, event: PartyProgress) -> str:
        """At a server: who waits for whom, once for every wait."""
        who = event.run, event.party
        before, self._waits[who] = self._waits.get(who, ()), event.waits_for
        if event.state == "finished":
            del self._waits[who]
        if not event.waits_for or event.waits_for == before:
            return ""
        return f"{event.party}: at step {event.step} of {event.steps}, waits for {', '.join(event.waits_for)}"
