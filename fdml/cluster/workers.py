"""The seam between a party and whoever works for it: tasks in, results out, in the order of tasks.

A worker keeps nothing between tasks but what it was set up with. So a task that is lost is done again, by anybody, and
gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Protocol

from fdml.cluster.frames import Frame
from fdml.errors import DataError


class NotHere(DataError):
    """Something is wrong with what this worker's machine sees; who hears of it adds the worker's place."""


class Job(Protocol):
    """What a worker does: a pure function of its set-up and a task. One thread at a time calls it."""

    def run(self, task: Frame) -> Frame:
        """The result of a task."""
        ...


class Workers(Protocol):
    """Somebody who does tasks."""

    def map(self, tasks: Sequence[Frame]) -> list[Frame]:
        """The results of all tasks, in their order; raises what a task raised, or `WorkerLost`."""
        ...

    def remarks(self) -> list[str]:
        """What a person should know since the last call: who was lost, who is slow."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


class ThreadWorkers:
    """Threads of this process, each with a job of its own."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        for job in jobs:
            self._jobs.put(job)
        self._pool = ThreadPoolExecutor(len(jobs), "workers")

    def map(self, tasks: Sequence[Frame]) -> list[Frame]:
        """The results of all tasks, in their order."""
        return list(self._pool.map(self._run, tasks))

    def _run(self, task: Frame) -> Frame:
        job = self._jobs.get()
        try:
            return job.run(task)
        finally:
            self._jobs.put(job)

    def remarks(self) -> list[str]:
        """Nothing: threads are not lost."""
        return []

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
