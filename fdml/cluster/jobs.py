"""What workers in other processes can be set up for, by name."""

from __future__ import annotations

from collections.abc import Callable

from fdml.cluster.column_job import column_job
from fdml.cluster.frames import Frame
from fdml.cluster.hashing_job import hashing_job
from fdml.cluster.reading_jobs import encoding_job, learning_job
from fdml.cluster.shard_job import shard_job
from fdml.cluster.workers import Job

JOBS: dict[str, Callable[[Frame], Job]] = {
    "shards": shard_job,
    "columns": column_job,
    "learning": learning_job,
    "encoding": encoding_job,
    "hashing": hashing_job,
}


def job_of(setup: Frame) -> Job:
    """The job that a set-up names."""
    return JOBS[setup.facts["job"]](setup)
