"""Work in a process of its own: its peak memory is that of the work alone."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MEBIBYTE = 2**20
TWO_GIGABYTES = 2_000_000_000 / MEBIBYTE
"""In MiB: what a process may take, however large the data is."""


def in_own_process(work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """What the work returns, or raises; it is a function of a module, as the process is started anew."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        return processes.submit(work, *arguments, **options).result()
