"""Threads inside a party: rows are predicted independently of each other, so threads can share a block of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from fdml.data.rows import Rows
from fdml.models.compiled import CompiledModel, Model
from fdml.models.kernels import Floats

_FEWEST = 4096
"""Rows for which another thread is worth its start."""


class PredictPool:
    """So many threads that predict together; what they predict does not depend on their number."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="crew") if threads > 1 else None

    def predict(self, model: Model, rows: Rows, start: int, stop: int) -> Floats:
        """Local predictions of the rows from `start` to `stop`. Only compiled models run beside each other."""
        parts = min(self._threads, (stop - start) // _FEWEST)
        if self._pool is None or parts < 2 or not isinstance(model, CompiledModel):
            return model.predict(rows, start, stop)
        edges = np.linspace(start, stop, parts + 1).astype(int).tolist()
        others = [self._pool.submit(model.predict, rows, begin, end) for begin, end in pairwise(edges[1:])]
        mine = model.predict(rows, edges[0], edges[1])
        return np.concatenate([mine, *(other.result() for other in others)])
