"""Workers that are not in the party's process, by its settings."""

from __future__ import annotations

from fdml.cluster.frames import Frame
from fdml.cluster.lines import LinedWorkers
from fdml.cluster.processes import process_workers
from fdml.cluster.ray_workers import ray_workers
from fdml.cluster.settings import WorkersSettings


def workers_elsewhere(setup: Frame, count: int, settings: WorkersSettings) -> LinedWorkers:
    """So many processes of this machine, or actors of the party's Ray cluster, each set up by this frame."""
    if settings.address is None:
        return process_workers(setup, count, settings.seconds)
    return ray_workers(setup, count, settings.seconds, settings.address)
