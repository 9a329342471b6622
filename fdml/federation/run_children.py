"""A party's processes, one for each run that it takes part in: started, and started again whenever one dies.

A process that another one has left behind, as after `kill -9`, holds the lock of its run's folder. It is left alone
until it has ended, so there are never two for one run.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from fdml.errors import FdmlError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a process that has died is started again: twice as long each time."""
_STEADY_SECONDS = 120.0
"""A process that has run for so long begins again with the first pause."""
_END_SECONDS = 10.0
"""Time that a process gets to end by itself once it is asked to."""


class Child(Protocol):
    """One process."""

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        ...

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        ...

    def failure(self) -> str:
        """Why it has ended, in its own words."""
        ...


@dataclass
class _Run:
    """What is known of one run's process."""

    child: Child | None = None
    started_at: float = 0.0
    again_at: float = 0.0
    pause: float = FIRST_PAUSE
    is_done: bool = False
    kill_at: float | None = None
    """When a process that was asked to end is killed."""
    told: str = ""
    """What was last said of its failures."""


class RunChildren:
    """Keeps a process up for every run that is wanted and not done."""

    def __init__(
        self,
        start: Callable[[str], Child],
        is_in_use: Callable[[str], bool],
        clock: Callable[[], float],
        remark: Callable[[str], None],
        outcome: Callable[[str], str] = lambda _: "",
    ) -> None:
        """`is_in_use` says whether any process holds a run's lock, `outcome` what came of one that is done."""
        self._start = start
        self._is_in_use = is_in_use
        self._clock = clock
        self._remark = remark
        self._outcome = outcome
        self._runs: dict[str, _Run] = {}

    @property
    def running(self) -> frozenset[str]:
        """The runs that have a process of ours."""
        return frozenset(name for name, run in self._runs.items() if run.child is not None)

    def look(self, wanted: Collection[str], stopped: Collection[str] = ()) -> None:
        """Note who has ended, start who is wanted and missing, and end those of stopped runs.

        A process of a run that is neither is left to end by itself.
        """
        for name in wanted:
            self._runs.setdefault(name, _Run())
        for name, run in list(self._runs.items()):
            self._note_end(name, run)
            if name in stopped and run.child is not None:
                self._end(run)
            elif run.child is None and name not in wanted:
                del self._runs[name]
            elif run.child is None and not run.is_done and self._clock() >= run.again_at:
                self._begin(name, run)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send all processes of ours a signal: to end, by default."""
        for run in self._runs.values():
            if run.child is not None:
                run.child.send(number)

    def are_running(self) -> bool:
        """Whether any process of ours still runs."""
        return any(run.child is not None and run.child.code is None for run in self._runs.values())

    def _end(self, run: _Run) -> None:
        """Ask a process to end, once; kill it if it does not."""
        if run.child is not None and run.kill_at is None:
            run.child.send(signal.SIGINT)
            run.kill_at = self._clock() + _END_SECONDS
        elif run.child is not None and run.kill_at is not None and self._clock() >= run.kill_at:
            run.child.send(signal.SIGKILL)

    def _begin(self, name: str, run: _Run) -> None:
        if self._is_in_use(name):
            self._report(name, run, "goes on in another process, which is waited for")
            run.again_at = self._clock() + FIRST_PAUSE
            return
        try:
            child = self._start(name)
        except FdmlError as error:
            self._report(name, run, f"cannot be started: {error}")
            run.again_at = self._clock() + LONGEST_PAUSE
            return
        run.child, run.started_at, run.kill_at = child, self._clock(), None

    def _note_end(self, name: str, run: _Run) -> None:
        if run.child is None or run.child.code is None:
            return
        code, why = run.child.code, run.child.failure()
        lived, was_asked = self._clock() - run.started_at, run.kill_at is not None
        run.child = None
        if code == 0:
            run.is_done = True
            self._report(name, run, f"is done{self._outcome(name)}")
            return
        if was_asked:
            self._report(name, run, "is not under way here any more")
            return
        if lived >= _STEADY_SECONDS:
            run.pause = FIRST_PAUSE
        run.again_at = self._clock() + run.pause
        self._report(name, run, f"its process has ended: {why}; it is started again in {run.pause:g} s")
        run.pause = min(2 * run.pause, LONGEST_PAUSE)

    def _report(self, name: str, run: _Run, text: str) -> None:
        if text != run.told:
            run.told = text
            self._remark(
                f"run {name!r} {text}" if text.startswith(("is ", "goes ", "cannot ")) else f"run {name!r}: {text}"
            )
