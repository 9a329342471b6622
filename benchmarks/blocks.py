"""Does a party's data have to fit into memory? Its file goes through the block store, in a process of its own.

The file is a sparse matrix as numpy.savez writes it. Peak memory is what the
operating system counts for the process, the interpreter and libraries included.
"""

from __future__ import annotations

import resource
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.own_process import MEBIBYTE, TWO_GIGABYTES, in_own_process
from fdml.data.block_store import open_blocks, write_blocks
from fdml.data.rows import SparseRows, span
from fdml.data.sources import open_sources
from fdml.errors import InvariantBroken
from fdml.protocol.shuffle import permutation
from fdml.settings.data import DataSettings

_ROWS = 5_000_000
_ENTRIES = 60
_WIDTH = 6_000
_PIECE = 100_000
"""Rows that are made at a time."""
_BLOCK = 6_400


def run(progress: Progress, rows: int = _ROWS) -> Report:
    """Write a file of so many rows, then let it through the store."""
    with tempfile.TemporaryDirectory(prefix="fdml-blocks-") as folder:
        progress(f"writing a file of {rows:,} rows x {_ENTRIES} entries")
        _write_file(Path(folder) / "data.npz", rows)
        progress("through the store")
        stored = in_own_process(_store, Path(folder), rows)
        read = in_own_process(_read, Path(folder), rows)
    results = [
        row("file to store", [stored["seconds"]], "seconds"),
        row("file to store: process", [stored["peak"]], "MiB"),
        row("opening the store", [1e3 * read["opening"]], "ms"),
        row(f"taking a block of {_BLOCK} rows out of it", [1e6 * each for each in read["taking"]], "us"),
    ]
    ratios = {"2 GB/peak memory": spread([TWO_GIGABYTES / stored["peak"]]) | {"target": 1.0}}
    question = (
        f"Does data have to fit into memory? {rows:,} rows x {_ENTRIES} entries, {stored['bytes']:,} bytes on disk."
    )
    return Report("blocks", question, results, ratios, machine(), commit())


def _piece(first: int, rows: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Columns and values of the rows from `first` on, the same whenever they are made."""
    chance = np.random.default_rng(first)
    count = min(_PIECE, rows - first)
    step = _WIDTH // _ENTRIES
    columns = np.arange(_ENTRIES) * step + chance.integers(0, step, (count, _ENTRIES))
    return columns.astype(np.int32), chance.random((count, _ENTRIES), np.float32) + 0.5


def _write_file(path: Path, rows: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in (("format", np.array(b"csr")), ("shape", np.array([rows, _WIDTH]))):
            with archive.open(f"{name}.npy", "w") as file:
                npy.write_array(file, array, allow_pickle=False)
        _write_member(archive, "indptr", np.dtype("<i8"), rows + 1, iter([np.arange(rows + 1) * _ENTRIES]))
        for name, kind, part in (("indices", "<i4", 0), ("data", "<f4", 1)):
            pieces = (_piece(first, rows)[part] for first in range(0, rows, _PIECE))
            _write_member(archive, name, np.dtype(kind), rows * _ENTRIES, pieces)


def _write_member(
    archive: zipfile.ZipFile, name: str, kind: np.dtype[Any], size: int, pieces: Iterator[NDArray[Any]]
) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        npy.write_array_header_1_0(file, {"descr": kind.str, "fortran_order": False, "shape": (size,)})
        for piece in pieces:
            file.write(piece.astype(kind, copy=False).tobytes())


def _store(folder: Path, rows: int) -> dict[str, Any]:
    (source,) = open_sources(DataSettings(path=folder / "data.npz"))
    places = permutation(rows, 7, "bench")
    began = time.perf_counter()
    write_blocks(folder / "blocks", source.chunks(), places, rows, len(source.names))
    seconds = time.perf_counter() - began
    size = sum(path.stat().st_size for path in (folder / "blocks").iterdir())
    return {"seconds": seconds, "peak": _peak(), "bytes": size}


def _read(folder: Path, rows: int) -> dict[str, Any]:
    began = time.perf_counter()
    stored = open_blocks(folder / "blocks")
    opening = time.perf_counter() - began
    if not isinstance(stored, SparseRows):
        raise InvariantBroken("sparse rows came out of the store as dense ones")
    _check(stored, rows)
    taking = []
    for start in range(0, rows - _BLOCK, max(1, rows // 50)):
        began = time.perf_counter()
        block = span(stored, start, start + _BLOCK)
        taking.append(time.perf_counter() - began)
        if not isinstance(block, SparseRows) or not np.shares_memory(block.values, stored.values):
            raise InvariantBroken("a block was copied")
    return {"opening": opening, "taking": taking}


def _check(stored: SparseRows, rows: int) -> None:
    """A wrong store is no measurement."""
    places = permutation(rows, 7, "bench")
    for first in range(0, rows, max(_PIECE, rows // 5 // _PIECE * _PIECE)):
        columns, values = _piece(first, rows)
        for at in range(0, len(values), 997):
            place = places[first + at]
            entries = slice(stored.indptr[place], stored.indptr[place + 1])
            same = np.array_equal(stored.indices[entries], columns[at]) and np.array_equal(
                stored.values[entries], values[at]
            )
            if not same:
                raise InvariantBroken(f"row {first + at} of the file is not at place {place} of the store")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEBIBYTE
