"""Orders drawn from a seed, the same on every machine and with every version of numpy.

The parties of a run never send each other an order: each draws it for itself.
So the generator is written out here (SplitMix64 and Fisher-Yates) instead of
taken from a library that may change its streams.
"""

from __future__ import annotations

import hashlib

import numba
import numpy as np
from numpy.typing import NDArray


def permutation(size: int, *key: int | str) -> NDArray[np.int64]:
    """A random order of 0..size-1 that depends on the key alone."""
    return _fisher_yates(np.int64(size), np.uint64(stream(*key)))


def permutation_of_runs(size: int, run: int, *key: int | str) -> NDArray[np.int64]:
    """A random order of 0..size-1 in which runs of `run` consecutive numbers stay together."""
    runs = permutation(-(-size // run), *key)
    return runs if run == 1 else _spread(runs, run, size)


def stream(*key: int | str) -> int:
    """64 bits that depend on the key alone; the start of a stream of random numbers."""
    text = "/".join(str(part) for part in key)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@numba.njit(nogil=True, cache=True)
def _fisher_yates(size: np.int64, state: np.uint64) -> NDArray[np.int64]:
    order = np.arange(size)
    for last in range(size - 1, 0, -1):
        state += np.uint64(0x9E3779B97F4A7C15)
        bits = state
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(31))
        # The upper half times the bound, shifted down: an index below the bound without a division.
        other = np.int64(((bits >> np.uint64(32)) * np.uint64(last + 1)) >> np.uint64(32))
        order[last], order[other] = order[other], order[last]
    return order


@numba.njit(nogil=True, cache=True)
def _spread(runs: NDArray[np.int64], run: int, size: int) -> NDArray[np.int64]:
    order = np.empty(size, np.int64)
    at = 0
    for first in runs:
        for number in range(run * first, min(run * first + run, size)):
            order[at] = number
            at += 1
    return order
