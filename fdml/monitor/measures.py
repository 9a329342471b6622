"""What a party measures of its own part in a run: lag, waiting, traffic, restarts. For its page and its report."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from fdml.events import Aligned, EpochDone, Event, Finished, Joined, Released, Scheduled, StepDone, Stopped
from fdml.storage.atomic import write_file

MEASURES = "measures.json"
"""In the folder of the run at a party."""
_SAVE_SECONDS = 2.0
"""The file is written at most so often while the run goes on."""


class Traffic(Protocol):
    """What a party's channel counts."""

    @property
    def bytes_sent(self) -> int:
        """Of messages of the stream, each time that they were sent."""
        ...

    @property
    def bytes_received(self) -> int:
        """Of the other side's."""
        ...

    @property
    def waited_seconds(self) -> float:
        """In which the party could do nothing until something came."""
        ...


@dataclass(frozen=True)
class Start:
    """One start of the party's process in a run."""

    began: float
    """Seconds since 1970."""
    resumed_at: int = 0
    steps: int = 0
    seconds: float = 0.0
    """From its start until it was last written down."""
    waited_seconds: float = 0.0
    """In which it could do nothing until a message came."""
    bytes_sent: int = 0
    """Of training and evaluation, with what TLS and the network add left out."""
    bytes_received: int = 0


@dataclass(frozen=True)
class Measures:
    """All starts of one party in one run."""

    starts: tuple[Start, ...] = ()
    lag: dict[int, int] = field(default_factory=dict)
    """By lag, in how many steps it was met; a step that is done again after a restart counts again."""
    releases: dict[str, int] = field(default_factory=dict)
    """By purpose, how many times values have left."""
    aligned: Aligned | None = None
    scheduled: Scheduled | None = None
    stopped: str = ""
    """Why training ended before its last step; empty if it did not."""
    finished: bool = False

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return max(0, len(self.starts) - 1)


def lag_bars(lag: dict[int, int], most: int = 12) -> tuple[tuple[str, float], ...]:
    """Steps by lag, from the smallest lag on, in at most so many bars: the last one has all that are larger."""
    known = sorted(lag.items())
    if len(known) > most:
        rest = known[most - 1 :]
        return (*lag_bars(dict(known[: most - 1])), (f"{rest[0][0]}+", float(sum(count for _, count in rest))))
    return tuple((str(each), float(count)) for each, count in known)


class MeasuresFile:
    """A listener that counts, and keeps `measures.json`; only for people, so a damaged one is begun anew."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._began = self._saved_at = clock()
        known = read_measures(path)
        self._known = known or Measures()
        self._lag: Counter[int] = Counter(self._known.lag)
        self._releases: Counter[str] = Counter(self._known.releases)
        self._start = Start(wall())
        self._steps = 0
        self.line: Traffic | None = None
        """The channel, once there is one."""

    def __call__(self, event: Event) -> None:
        """Count one event."""
        if type(event) is StepDone:  # these two first, as every step has both
            self._lag[event.lag] += 1
            self._steps += 1
            return
        if type(event) is Released:
            self._releases[event.purpose] += 1
            return
        match event:
            case EpochDone() if self._clock() - self._saved_at >= _SAVE_SECONDS:
                self.save()
            case Aligned() | Scheduled() | Joined() | Stopped() | Finished():
                self._note(event)
                self.save()
            case _:
                pass

    def _note(self, event: Aligned | Scheduled | Joined | Stopped | Finished) -> None:
        match event:
            case Aligned():
                self._known = replace(self._known, aligned=event)
            case Scheduled():
                self._known = replace(self._known, scheduled=event)
            case Joined(resumed_at=step):
                self._start = replace(self._start, resumed_at=step)
            case Stopped(reason=reason):
                self._known = replace(self._known, stopped=reason)
            case Finished():
                self._known = replace(self._known, finished=True)

    @property
    def measures(self) -> Measures:
        """All that is known by now."""
        line = self.line
        start = replace(self._start, steps=self._steps, seconds=self._clock() - self._began)
        if line is not None:
            start = replace(
                start,
                waited_seconds=line.waited_seconds,
                bytes_sent=line.bytes_sent,
                bytes_received=line.bytes_received,
            )
        return replace(
            self._known, starts=(*self._known.starts, start), lag=dict(self._lag), releases=dict(self._releases)
        )

    def save(self) -> None:
        """Write the file; a disk that takes none of it stops no run."""
        with self._lock, contextlib.suppress(OSError):
            self._saved_at = self._clock()
            write_file(self._path, (json.dumps(asdict(self.measures), indent=1) + "\n").encode())


def read_measures(path: Path) -> Measures | None:
    """What a party has measured; None where the file is not there or not ours."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        aligned, scheduled = found["aligned"], found["scheduled"]
        return Measures(
            starts=tuple(Start(**each) for each in found["starts"]),
            lag={int(lag): int(count) for lag, count in found["lag"].items()},
            releases={str(name): int(count) for name, count in found["releases"].items()},
            aligned=None if aligned is None else Aligned(**aligned),
            scheduled=None if scheduled is None else Scheduled(**scheduled),
            stopped=str(found["stopped"]),
            finished=bool(found["finished"]),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
