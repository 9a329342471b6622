"""A worker process: reads what it is set up with, then tasks, and answers each. The end of its pipe ends it.

python -m fdml.cluster.worker_process
"""

from __future__ import annotations

import os
import signal
import sys
from typing import BinaryIO

from threadpoolctl import threadpool_limits

from fdml.cluster.frames import Frame, read_frame, write_frame
from fdml.cluster.jobs import job_of
from fdml.cluster.lines import error_frame
from fdml.cluster.workers import Job
from fdml.errors import FdmlError


def answer(job: Job, task: Frame) -> Frame:
    """The result of a task under the number of its attempt, or what it failed with."""
    try:
        result = job.run(task)
    except FdmlError as error:
        return error_frame(task, error)
    return Frame({**result.facts, "fence": task.facts["fence"]}, result.arrays)


def work(tasks: BinaryIO, results: BinaryIO) -> None:
    """Answer all tasks."""
    setup = read_frame(tasks)
    if setup is None:
        return
    job = job_of(setup)
    while (task := read_frame(tasks)) is not None:
        write_frame(results, answer(job, task))


def main() -> None:
    """Work over standard input and output; whatever else is printed goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the party ends its workers itself
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with threadpool_limits(1):
        work(sys.stdin.buffer, results)


if __name__ == "__main__":
    main()
