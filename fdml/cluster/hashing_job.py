"""Hashing ids, as a worker's job."""

from __future__ import annotations

import pyarrow as pa

from fdml.cluster.frames import Frame
from fdml.data.id_hashes import hash_ids


class HashingJob:
    """Hashes the ids of a task under its key."""

    def run(self, task: Frame) -> Frame:
        """Their hashes."""
        bounds, content = task.arrays["bounds"], task.arrays["texts"]
        texts = pa.Array.from_buffers(
            pa.large_string(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(content)]
        )
        return Frame({}, {"hashes": hash_ids(texts, task.arrays["key"].tobytes(), task.facts["size"])})


def hashing_job(_setup: Frame) -> HashingJob:
    """The job, which needs nothing to be set up."""
    return HashingJob()
