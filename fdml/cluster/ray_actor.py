"""What runs on a node of a Ray cluster: a job behind bytes. Ray carries them; nothing of fdml's state is pickled."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import ray
from llvmlite import binding
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fdml.cluster.frames import Frame, from_bytes, to_bytes
from fdml.cluster.jobs import job_of
from fdml.cluster.lines import error_frame
from fdml.cluster.row_files import size_of
from fdml.cluster.worker_process import answer
from fdml.cluster.workers import Job
from fdml.errors import FdmlError

_PACKAGES = ("fdml", "numpy", "scipy", "numba", "llvmlite")


class RayWorker:
    """A worker on a node: asked to look, then to begin, then with tasks."""

    def __init__(self) -> None:
        self._limits = threadpool_limits(1)
        self._job: Job | None = None

    def look(self, files: bytes) -> bytes:
        """Where this is, what is installed, and which of these files it does not see as they are at the party."""
        known = from_bytes(files).facts["files"]
        facts = {
            "node": ray.get_runtime_context().get_node_id(),
            "process": os.getpid(),
            "installed": installed(),
            "processor": processor(),
            "unseen": [path for path, facts in known.items() if facts != file_facts(path)],
        }
        return to_bytes(Frame(facts))

    def begin(self, setup: bytes, names: Sequence[str], *arrays: NDArray[np.uint8]) -> bytes:
        """Be set up; `arrays` have these names in the set-up, and are sent as numbers of one byte."""
        frame = from_bytes(setup)
        try:
            self._job = job_of(Frame(frame.facts, {**frame.arrays, **dict(zip(names, arrays, strict=True))}))
        except FdmlError as error:
            return to_bytes(error_frame(Frame({"fence": 0}), error))
        return to_bytes(Frame({}))

    def answer(self, task: bytes) -> bytes:
        """The answer to a task."""
        if self._job is None:
            raise RuntimeError("asked with a task before it was set up")
        return to_bytes(answer(self._job, from_bytes(task)))


def installed() -> dict[str, str]:
    """The versions here of all that results could depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def processor() -> str:
    """The kind of processor that code is compiled for here."""
    return str(binding.get_host_cpu_name())


def file_facts(path: str) -> list[int] | None:
    """The size of a file and when it was changed; None where it cannot be read."""
    if not os.access(path, os.R_OK):
        return None
    found = Path(path).stat()
    return [found.st_size, found.st_mtime_ns]


def content_of(place: dict[str, Any]) -> NDArray[np.uint8]:
    """The bytes of an array in a file."""
    return np.fromfile(place["file"], np.uint8, size_of(place), offset=int(place["offset"]))
