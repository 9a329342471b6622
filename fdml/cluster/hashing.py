"""Keyed hashes of many ids by workers: ids and key travel to a worker of the party, hashes come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.cluster.frames import Frame
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.starting import workers_of
from fdml.cluster.workers import Workers
from fdml.data.id_hashes import HashIds, hash_ids
from fdml.data.many_texts import text_bytes
from fdml.protocol.alignment_messages import Keys

TASK_ROWS = 2**15
"""Ids of a task."""
_FEW = 2**17
"""Up to so many are hashed here: workers take longer to start."""


class SpreadHashing:
    """Hashes ids as `hash_ids` does; workers start with the first many, and stay until it is closed."""

    def __init__(self, settings: WorkersSettings, few: int = _FEW) -> None:
        self._settings = settings
        self._few = few
        self._workers: Workers | None = None

    def __call__(self, ids: Any, key: bytes, size: int) -> Keys:
        """A keyed hash of each id's text, `(ids, size)`."""
        if len(ids) <= self._few or ids.null_count:
            return hash_ids(ids, key, size)
        parts = [ids[begin : begin + TASK_ROWS] for begin in range(0, len(ids), TASK_ROWS)]
        if self._workers is None:
            self._workers = workers_of(self._settings, Frame({"job": "hashing"}), len(parts))
        results = self._workers.map([_task(part, key, size) for part in parts])
        return np.concatenate([result.arrays["hashes"] for result in results])

    def close(self) -> None:
        """End the workers."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None


@contextmanager
def hashing(settings: WorkersSettings) -> Iterator[HashIds]:
    """How a party hashes ids; threads would only wait for each other."""
    if settings.kind == "threads":
        yield hash_ids
        return
    spread = SpreadHashing(settings)
    try:
        yield spread
    finally:
        spread.close()


def _task(ids: Any, key: bytes, size: int) -> Frame:
    bounds, content = text_bytes(ids)
    arrays: dict[str, NDArray[Any]] = {
        "bounds": bounds,
        "texts": np.frombuffer(content, np.uint8),
        "key": np.frombuffer(key, np.uint8),
    }
    return Frame({"size": size}, arrays)
