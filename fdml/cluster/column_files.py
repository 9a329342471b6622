"""The columns of each group as files of their own, so that whoever works for a group reads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import DenseRows, PlainRows, PointedRows, Rows, SparseRows, columns, row_count, span
from fdml.models.column_groups import Features

_CHUNK = 2**16
"""Rows that are cut at once."""


def cut_columns(rows: Rows, groups: Sequence[Features], folder: Path) -> list[Rows]:
    """The rows of every group, mapped from files in `folder`; a chunk of rows is in memory at a time."""
    stored = rows.stored if isinstance(rows, PointedRows) else rows
    files = [_GroupFiles(folder / str(number), len(features)) for number, features in enumerate(groups)]
    for start in range(0, max(row_count(stored), 1), _CHUNK):
        chunk = span(stored, start, min(start + _CHUNK, row_count(stored)))
        for each, features in zip(files, groups, strict=True):
            each.add(columns(chunk, features))
    found = [each.rows() for each in files]
    return [PointedRows(each, rows.pointers) if isinstance(rows, PointedRows) else each for each in found]


class _GroupFiles:
    """The arrays of one group's rows, written from chunk to chunk."""

    def __init__(self, folder: Path, width: int) -> None:
        folder.mkdir(mode=0o700, parents=True)
        self._folder = folder
        self._width = width
        self._rows = 0
        self._is_sparse = False
        self._ends: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]

    def add(self, chunk: PlainRows) -> None:
        """Append some rows."""
        self._rows += row_count(chunk)
        self._append("values", chunk.values)
        if isinstance(chunk, SparseRows):
            self._is_sparse = True
            self._append("indices", chunk.indices)
            self._ends.append(chunk.indptr[1:] + self._ends[-1][-1])

    def rows(self) -> PlainRows:
        """All rows, mapped."""
        values = self._mapped("values", np.float32)
        if not self._is_sparse:
            return DenseRows(values.reshape(self._rows, self._width))
        indptr = np.concatenate(self._ends)
        return SparseRows(indptr, self._mapped("indices", np.int32), values, self._width)

    def _append(self, name: str, array: NDArray[Any]) -> None:
        with (self._folder / name).open("ab") as file:
            np.ascontiguousarray(array).tofile(file)

    def _mapped(self, name: str, kind: type[Any]) -> NDArray[Any]:
        path = self._folder / name
        return np.asarray(np.memmap(path, kind, "c")) if path.stat().st_size else np.zeros(0, kind)
