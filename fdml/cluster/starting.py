"""Workers as `[workers]` of a party.toml asks for them, for any job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fdml.cluster.elsewhere import workers_elsewhere
from fdml.cluster.frames import Frame
from fdml.cluster.jobs import job_of
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.workers import ThreadWorkers, Workers

Remark = Callable[[str], None]
"""Hears what a person should know."""


def workers_of(settings: WorkersSettings, setup: Frame, tasks: int) -> Workers:
    """Workers for so many tasks, each set up by a frame that names its job."""
    count = settings.workers(tasks)
    if settings.kind == "threads":
        return ThreadWorkers([job_of(setup) for _ in range(count)])
    return workers_elsewhere(setup, count, settings)


@contextmanager
def working(settings: WorkersSettings, setup: Frame, tasks: int, remark: Remark) -> Iterator[Workers]:
    """Workers for so many tasks, which end with the block."""
    workers = workers_of(settings, setup, tasks)
    try:
        yield workers
    finally:
        for text in workers.remarks():
            remark(text)
        workers.close()
