"""A sparse .npz archive, written piece by piece; the same rows give the same bytes."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fdml.data.rows import SparseRows

_COPIED = 2**20
"""Bytes that are copied at a time."""


class ArchiveWriter:
    """Rows on their way into one archive, with arrays of one entry per row beside them.

    An archive's arrays stand one after the other, so the entries wait in files
    beside it until all rows are there. `close` makes the archive of them.
    """

    def __init__(self, path: Path, width: int) -> None:
        self._path = path
        self._width = width
        self._lengths: list[NDArray[np.int64]] = []
        self._columns: dict[str, list[NDArray[Any]]] = {}
        self._waiting = {name: path.with_name(f".{path.name}.{name}") for name in ("indices", "data")}
        self._files: dict[str, BinaryIO] = {name: each.open("wb") for name, each in self._waiting.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """Make the archive if all went well; nothing else is left behind."""
        try:
            for file in self._files.values():
                file.close()
            if kind is None:
                self._write()
        finally:
            for path in self._waiting.values():
                path.unlink()

    def add(self, rows: SparseRows, **columns: NDArray[Any]) -> None:
        """More rows; every call names the same columns."""
        entries = slice(rows.indptr[0], rows.indptr[-1])
        rows.indices[entries].tofile(self._files["indices"])
        rows.values[entries].tofile(self._files["data"])
        self._lengths.append(np.diff(rows.indptr))
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column)

    def _write(self) -> None:
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(self._lengths))])
        arrays: dict[str, NDArray[Any]] = {
            "format": np.array(b"csr"),
            "shape": np.array([len(indptr) - 1, self._width]),
            "indptr": indptr,
            **{name: np.concatenate(parts) for name, parts in self._columns.items()},
        }
        with zipfile.ZipFile(self._path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in arrays.items():
                with _member(archive, name) as member:
                    npy.write_array(member, array, allow_pickle=False)
            for name, kind in (("indices", "<i4"), ("data", "<f4")):
                header = {"descr": kind, "fortran_order": False, "shape": (int(indptr[-1]),)}
                with _member(archive, name) as member, self._waiting[name].open("rb") as waiting:
                    npy.write_array_header_1_0(member, header)
                    shutil.copyfileobj(waiting, member, _COPIED)


def _member(archive: zipfile.ZipFile, name: str) -> Any:
    """A member without the time of writing, which would make every archive another."""
    return archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)
