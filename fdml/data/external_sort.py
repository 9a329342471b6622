"""External merge sort of rows: a new order for more rows than memory holds.

Chunks are collected into runs of bounded size. Each run is sorted in memory and appended to a file. Then the rows are
read back span by span of the new order: a run's rows of one span are consecutive in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import (
    CHUNK_BYTES,
    DenseRows,
    PlainRows,
    Rows,
    SparseRows,
    plain_rows,
    row_count,
    take,
    vstack,
)
from fdml.errors import DataError
from fdml.storage.atomic import extended_file


@dataclass
class _Run:
    """Sorted rows in the file, and how far they have been read back."""

    places: NDArray[np.int64]
    """The new position of each row, ascending."""
    row: int
    """The next row to read."""
    entry: int
    """The next entry of the file to read."""


class ExternalSort:
    """Sorts rows by `places`: row i goes to position `places[i]`, or is left out where that is -1.

    Sorting a run takes a few times `size` bytes of memory, and so does reading a span.
    """

    def __init__(self, folder: Path, places: NDArray[np.int64], rows: int, width: int, size: int = CHUNK_BYTES) -> None:
        self._folder = folder
        self._places = places
        self._size = size
        self._width = width
        self._lengths = np.full(rows, -1, np.int64)
        self._runs: list[_Run] = []
        self._entries = 0
        self.sparse = False

    def fill(self, chunks: Iterable[Rows]) -> None:
        """Sort all chunks into runs; raise unless they have exactly the rows of `places`."""
        waiting: list[PlainRows] = []
        seen = taken = 0
        for chunk in chunks:
            waiting.append(plain_rows(chunk))
            seen += row_count(chunk)
            if sum(map(_bytes, waiting)) >= self._size:
                self._write_run(vstack(waiting), taken)
                waiting, taken = [], seen
        if waiting:
            self._write_run(vstack(waiting), taken)
        if seen != len(self._places):
            raise DataError(f"{seen} rows were read, but {len(self._places)} before; leave the file as it is meanwhile")
        if (self._lengths < 0).any() or (self._places >= 0).sum() != len(self._lengths):
            raise DataError(f"not every one of the {len(self._lengths)} shared rows is there once; align again")

    def indptr(self) -> NDArray[np.int64]:
        """Where each row's entries begin in the new order; last, where they all end."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self._lengths)])

    def spans(self) -> Iterator[PlainRows]:
        """The rows in the new order, about `size` bytes at a time."""
        indptr = self.indptr()
        start = 0
        while start < len(self._lengths):
            full = indptr[start] + self._size // 8
            stop = min(max(int(np.searchsorted(indptr, full, side="right")) - 1, start + 1), start + self._size // 8)
            yield self._merged(min(stop, len(self._lengths)))
            start = stop

    def _write_run(self, rows: PlainRows, first: int) -> None:
        places = self._places[first : first + row_count(rows)]
        if len(places) < row_count(rows):
            raise DataError(f"there are more rows than the {len(self._places)} of before; leave the file as it is")
        kept = np.flatnonzero(places >= 0)
        order = kept[np.argsort(places[kept])]
        ordered = take(rows, order)
        places = places[order]
        self._runs.append(_Run(places, 0, self._entries))
        self._entries += ordered.values.size
        self._append("values", ordered.values)
        if isinstance(ordered, SparseRows):
            self.sparse = True
            self._append("indices", ordered.indices)
            self._lengths[places] = np.diff(ordered.indptr)
        else:
            self._lengths[places] = self._width

    def _merged(self, stop: int) -> PlainRows:
        """The next rows up to position `stop`."""
        parts, places = [], []
        for run in self._runs:
            end = int(np.searchsorted(run.places, stop))
            chosen = run.places[run.row : end]
            lengths = self._lengths[chosen]
            parts.append(self._read(run.entry, lengths))
            places.append(chosen)
            run.row, run.entry = end, run.entry + int(lengths.sum())
        return take(vstack(parts), np.argsort(np.concatenate(places)))

    def _read(self, entry: int, lengths: NDArray[np.int64]) -> PlainRows:
        count = int(lengths.sum())
        values = self._slice("values", np.float32, entry, count)
        if not self.sparse:
            return DenseRows(values.reshape(len(lengths), self._width))
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return SparseRows(indptr, self._slice("indices", np.int32, entry, count), values, self._width)

    def _append(self, name: str, array: NDArray[Any]) -> None:
        with extended_file(self._folder / name) as file:
            array.tofile(file)

    def _slice(self, name: str, kind: type[Any], entry: int, count: int) -> NDArray[Any]:
        return np.fromfile(self._folder / name, kind, count, offset=entry * np.dtype(kind).itemsize)


def _bytes(rows: PlainRows) -> int:
    if isinstance(rows, DenseRows):
        return rows.values.nbytes
    return 8 * int(rows.indptr[-1] - rows.indptr[0]) + rows.indptr.nbytes
