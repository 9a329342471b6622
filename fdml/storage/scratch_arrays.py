"""Arrays that may be larger than memory: in a scratch file that the system maps, and gone with it."""

from __future__ import annotations

from io import UnsupportedOperation
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fdml.storage.disk import Disk

IN_MEMORY = 64 * 2**20
"""Bytes of the largest array that needs no file."""


def scratch_array(disk: Disk | None, shape: tuple[int, ...], kind: DTypeLike, most: int = IN_MEMORY) -> NDArray[Any]:
    """A new array to fill: in memory up to `most` bytes and where there is no disk, else mapped."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    if disk is None or size <= most:
        return np.empty(shape, kind)
    file = disk.scratch()
    try:
        file.fileno()
    except UnsupportedOperation:  # a disk in memory
        return np.empty(shape, kind)
    file.truncate(size)
    with file:  # the map keeps it
        return np.memmap(file, kind, "r+", shape=shape)


def all_numbers(disk: Disk | None, count: int, step: int = 2**20, most: int = IN_MEMORY) -> NDArray[np.int64]:
    """The numbers from 0 to `count`, without it."""
    found = scratch_array(disk, (count,), np.int64, most)
    for begin in range(0, count, step):
        found[begin : begin + step] = np.arange(begin, min(begin + step, count))
    return found


def gathered(disk: Disk | None, values: NDArray[Any], places: NDArray[np.int64], step: int = 2**20) -> NDArray[Any]:
    """The values at these places, read a part at a time."""
    found = scratch_array(disk, (len(places), *values.shape[1:]), values.dtype)
    for begin in range(0, len(places), step):
        found[begin : begin + step] = values[places[begin : begin + step]]
    return found
