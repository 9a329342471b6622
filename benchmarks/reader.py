"""Do many gigabytes pass the reader in bounded memory? A folder of Parquet files, read as a party reads it.

The files are written for it and deleted afterwards. A process of its own opens the folder, learns means, categories and
what is missing, and then encodes every row; the rows are counted and thrown away. Peak memory is what the operating
system counts for that process, the interpreter and libraries included.

With `--workers` the same files are also read by that many processes of a party, which write their parts to disk; the
parts are then read back, each compared with its hashes. The rows must have the same bits both ways.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.own_process import MEBIBYTE, TWO_GIGABYTES, in_own_process
from fdml.cluster.parts import PartedSource
from fdml.cluster.reading import PartReader
from fdml.cluster.settings import WorkersSettings
from fdml.data.rows import DenseRows, plain_rows, row_count
from fdml.data.sources import Source, open_sources
from fdml.errors import InvariantBroken
from fdml.settings.data import DataSettings

_GIGABYTES = 20.0
_NUMBERS = 60
_LEVELS = 200
_FILE_ROWS = 2**19
"""Rows of one file, some 260 MB."""
_GROUP_ROWS = 2**16
_DAYS = 2_000


def run(progress: Progress, gigabytes: float = _GIGABYTES, workers: int = 0) -> Report:
    """Write files of so many gigabytes in all, then let them through the reader, and through so many workers."""
    with tempfile.TemporaryDirectory(prefix="fdml-reader-") as place:
        progress(f"writing {gigabytes:g} GB of Parquet")
        size, rows = _write_files(Path(place), gigabytes * 1e9)
        progress(f"reading {rows:,} rows")
        found = in_own_process(_read, Path(place))
        if workers:
            progress(f"reading them by {workers} processes")
            spread_out = in_own_process(_read_by_workers, Path(place), workers)
    if found["rows"] != rows:
        raise InvariantBroken(f"{rows} rows were written, {found['rows']} came out of the reader")
    results = [
        row("opening and learning from the rows", [found["fitting"]], "seconds"),
        row("encoding the rows", [found["encoding"]], "seconds"),
        row("rows encoded", [rows / found["encoding"]], "rows/s"),
        row("reading process", [found["peak"]], "MiB"),
    ]
    ratios = {"2 GB/peak memory": spread([TWO_GIGABYTES / found["peak"]]) | {"target": 1.0}}
    if workers:
        if spread_out["sum"] != found["sum"]:
            raise InvariantBroken("workers made other bits of the rows than one process")
        name = f"{workers} processes"
        results += [
            row(f"{name}: opening and learning from the rows", [spread_out["fitting"]], "seconds"),
            row(f"{name}: encoding the rows to parts", [spread_out["encoding"]], "seconds"),
            row(f"{name}: reading the parts back", [spread_out["reading"]], "seconds"),
            row(f"{name}: the process that asks", [spread_out["peak"]], "MiB"),
        ]
        one, many = (each["fitting"] + each["encoding"] for each in (found, spread_out))
        ratios[f"one process/{name}, learning and encoding"] = spread([one / many])
    question = f"Do many gigabytes pass the reader in bounded memory? {rows:,} rows, {size:,} bytes of Parquet."
    return Report("reader", question, results, ratios, machine(), commit())


def _write_files(folder: Path, wanted: float) -> tuple[int, int]:
    """Files until they have the size; its bytes and rows."""
    size = rows = number = 0
    while size < wanted:
        count = _FILE_ROWS if number else min(_FILE_ROWS, max(1000, int(wanted / (8 * _NUMBERS))))
        path = folder / f"part-{number:05d}.parquet"
        pa.parquet.write_table(_table(number, count), path, row_group_size=_GROUP_ROWS, compression="none")
        size, rows, number = size + path.stat().st_size, rows + count, number + 1
    return size, rows


def _table(number: int, rows: int) -> Any:
    """Numbers that do not repeat, some of them missing, a category and a date."""
    chance = np.random.default_rng(number)
    columns = {f"x{at}": chance.random(rows) for at in range(_NUMBERS - 1)}
    missing = pa.array(chance.random(rows), mask=chance.random(rows) < 0.1)
    levels = pa.array([f"level {at}" for at in range(_LEVELS)])
    days = pa.array(chance.integers(18_000, 18_000 + _DAYS, rows).astype(np.int32)).cast(pa.date32())
    category = levels.take(pa.array(chance.integers(0, _LEVELS, rows)))
    return pa.table({**columns, "sometimes": missing, "category": category, "day": days})


def _read(folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    (source,) = open_sources(DataSettings(path=folder))
    fitted = time.perf_counter()
    rows, total = _counted(source)
    ended = time.perf_counter()
    return {"rows": rows, "sum": total, "fitting": fitted - began, "encoding": ended - fitted, "peak": _peak()}


def _read_by_workers(folder: Path, workers: int) -> dict[str, Any]:
    settings = WorkersSettings(kind="processes", count=workers, seconds=3600)
    reader = PartReader(settings, folder / ".parts")
    began = time.perf_counter()
    (source,) = open_sources(DataSettings(path=folder), reader=reader)
    fitted = time.perf_counter()
    if not isinstance(source, PartedSource):
        raise InvariantBroken("the files are one piece, which one process reads; write more with --gigabytes")
    source.make()
    made = time.perf_counter()
    rows, total = _counted(source)
    ended = time.perf_counter()
    reader.clear()
    times = {"fitting": fitted - began, "encoding": made - fitted, "reading": ended - made}
    return {"rows": rows, "sum": total, "peak": _peak(), **times}


def _counted(source: Source) -> tuple[int, int]:
    """How many rows there are, and a sum of all their bits, whatever chunks they come in."""
    rows = total = 0
    for chunk in source.chunks():
        rows += row_count(chunk)
        plain = plain_rows(chunk)
        values = plain.values if isinstance(plain, DenseRows) else plain.values[plain.indptr[0] : plain.indptr[-1]]
        total += int(np.ascontiguousarray(values).view(np.uint32).sum(dtype=np.uint64))
    return rows, total


def _peak() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEBIBYTE
