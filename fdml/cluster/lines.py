"""Workers in other processes: tasks go out over lines, and one that is lost is done again over another line.

A line is lost where its process or machine is gone, or where it does not answer within the deadline. What it would
still say then is not heard: every attempt has a number of its own (a fencing number), and an answer must repeat it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from statistics import median
from typing import Protocol

from fdml import errors
from fdml.cluster.frames import Frame
from fdml.cluster.workers import NotHere
from fdml.errors import DataError, FdmlError, WorkerLost

ATTEMPTS = 4
"""Of one task."""
_SLOW, _SLOW_SECONDS = 3.0, 1.0
"""A worker is slow that takes so many times the seconds of the others, and at least so many."""


class LineLost(Exception):
    """A worker cannot be asked any more; the text says what is known."""


class WorkerLine(Protocol):
    """One worker that can be asked, in a process or on a machine of its own."""

    machine: str
    """For a person: where it is."""

    def ask(self, task: Frame, seconds: float) -> Frame:
        """The worker's answer; raises `LineLost` where none comes in time."""
        ...

    def end(self) -> None:
        """End the worker; it may be gone already."""
        ...


@dataclass
class _Slot:
    """A worker's place: its line, if there is one just now."""

    number: int
    line: WorkerLine | None = None


def _nothing() -> None:
    """Lines that share nothing."""


class LinedWorkers:
    """Workers behind lines. `open_line` begins a new one, for the worker of this number.

    `remarks` is where it says more than what is said here, and `stop` ends what all lines share.
    """

    def __init__(
        self,
        open_line: Callable[[int], WorkerLine],
        workers: int,
        seconds: float,
        *,
        remarks: list[str] | None = None,
        stop: Callable[[], None] = _nothing,
    ) -> None:
        self._open_line = open_line
        self._seconds = seconds
        self._idle: SimpleQueue[_Slot] = SimpleQueue()
        self._slots = [_Slot(number) for number in range(workers)]
        for slot in self._slots:
            self._idle.put(slot)
        self._pool = ThreadPoolExecutor(workers, "workers")
        self._fences = count(1)
        self._remarks: list[str] = [] if remarks is None else remarks
        self._called_slow: set[str] = set()
        self._lock = threading.Lock()
        self._end_lines = weakref.finalize(self, _end_all, self._slots, stop)

    def map(self, tasks: Sequence[Frame]) -> list[Frame]:
        """The results of all tasks, in their order."""
        done = list(self._pool.map(self._run, tasks))
        self._name_the_slow([(machine, seconds) for _, machine, seconds in done])
        return [result for result, _, _ in done]

    def _run(self, task: Frame) -> tuple[Frame, str, float]:
        slot = self._idle.get()
        try:
            return self._attempts(slot, task)
        finally:
            self._idle.put(slot)

    def _attempts(self, slot: _Slot, task: Frame) -> tuple[Frame, str, float]:
        lost = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                is_new, line = slot.line is None, slot.line or self._open_line(slot.number)
                slot.line = line
                began = time.monotonic()
                result = self._answer(line, task)
                seconds = time.monotonic() - began
                return result, line.machine, 0.0 if is_new else seconds  # its start is not the task's time
            except LineLost as error:
                where = f"worker {slot.number}" if slot.line is None else slot.line.machine
                lost = f"{where} {error}"
                self._remark(f"{lost}; its task is done again (attempt {attempt} of {ATTEMPTS})")
                if slot.line is not None:
                    slot.line.end()
                slot.line = None
        raise WorkerLost(
            f"a task was lost {ATTEMPTS} times, at last as {lost}; look at that machine, or raise workers.seconds "
            f"(now {self._seconds:g})"
        )

    def _answer(self, line: WorkerLine, task: Frame) -> Frame:
        fence = next(self._fences)
        answer = line.ask(Frame({**task.facts, "fence": fence}, task.arrays), self._seconds)
        if answer.facts.get("fence") != fence:
            raise LineLost(f"answered attempt {answer.facts.get('fence')} instead of {fence}")
        if "error" in answer.facts:
            raise error_of(answer, line.machine)
        return answer

    def _name_the_slow(self, taken: Sequence[tuple[str, float]]) -> None:
        usual = median(seconds for _, seconds in taken) if taken else 0.0
        for machine, seconds in taken:
            if seconds > max(_SLOW * usual, _SLOW_SECONDS) and machine not in self._called_slow:
                self._called_slow.add(machine)
                self._remark(f"{machine} is slow: a task took {seconds:.1f} s, where {usual:.1f} s are usual")

    def _remark(self, text: str) -> None:
        with self._lock:
            self._remarks.append(text)

    def remarks(self) -> list[str]:
        """Who was lost and who is slow, since the last call."""
        with self._lock:
            said = self._remarks[:]
            del self._remarks[: len(said)]
        return said

    def close(self) -> None:
        """End all workers."""
        self._pool.shutdown()
        self._end_lines()


def _end_all(slots: Sequence[_Slot], stop: Callable[[], None]) -> None:
    for slot in slots:
        if slot.line is not None:
            slot.line.end()
        slot.line = None
    stop()


def error_frame(task: Frame, error: FdmlError) -> Frame:
    """How a worker says that a task failed: a task of the same content would fail again."""
    is_here = isinstance(error, NotHere)
    kind = DataError if is_here else type(error)
    return Frame({"fence": task.facts["fence"], "error": kind.__name__, "text": str(error), "here": is_here})


def error_of(answer: Frame, machine: str) -> FdmlError:
    """What `error_frame` was given, with the machine where it matters; a plain error where its kind is not known."""
    kind = getattr(errors, answer.facts["error"], FdmlError)
    known = isinstance(kind, type) and issubclass(kind, FdmlError)
    text = f"{machine}: {answer.facts['text']}" if answer.facts.get("here") else answer.facts["text"]
    found: FdmlError = (kind if known else FdmlError)(text)
    return found
