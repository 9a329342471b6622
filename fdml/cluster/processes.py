"""Workers as processes of this machine, asked over pipes. A worker ends when its pipe does: none outlives its party."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from fdml.cluster.frames import Frame, read_frame, write_frame
from fdml.cluster.lines import LinedWorkers, LineLost

_ENDING = 5.0
"""Seconds that a process that was killed may take to be gone."""


class ProcessLine:
    """A worker process. At the deadline it is killed, which ends the wait for its answer."""

    def __init__(self, setup: Frame, number: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fdml.cluster.worker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.machine = f"worker {number} (process {self._process.pid})"
        self._setup: Frame | None = setup

    def ask(self, task: Frame, seconds: float) -> Frame:
        """The worker's answer; the first task is sent after what the worker is set up with."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise LineLost("has no pipe")
        deadline = threading.Timer(seconds, process.kill)
        deadline.start()
        try:
            if self._setup is not None:
                write_frame(process.stdin, self._setup)
                self._setup = None
            write_frame(process.stdin, task)
            answer = read_frame(process.stdout)
        except OSError as error:
            raise LineLost(f"is gone ({error.strerror})") from None
        finally:
            deadline.cancel()
        if answer is None:
            raise LineLost(f"has ended, or not answered within {seconds:g} s")
        return answer

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was not sent yet can no longer be
                    continue
        self._process.wait(_ENDING)


def process_workers(setup: Frame, workers: int, seconds: float) -> LinedWorkers:
    """So many processes of this machine, each set up by a frame that names its job."""
    return LinedWorkers(lambda number: ProcessLine(setup, number), workers, seconds)
