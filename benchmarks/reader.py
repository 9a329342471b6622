"""Do many gigabytes pass the reader in bounded memory? A folder of Parquet files, read as a party reads it.

The files are written for it and deleted afterwards. A process of its own opens the folder, learns means, categories and
what is missing, and then encodes every row; the rows are counted and thrown away. Peak memory is what the operating
system counts for that process, the interpreter and libraries included.
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
from fdml.data.rows import row_count
from fdml.data.sources import open_sources
from fdml.errors import InvariantBroken
from fdml.settings.data import DataSettings

_GIGABYTES = 20.0
_NUMBERS = 60
_LEVELS = 200
_FILE_ROWS = 2**19
"""Rows of one file, some 260 MB."""
_GROUP_ROWS = 2**16
_DAYS = 2_000


def run(progress: Progress, gigabytes: float = _GIGABYTES) -> Report:
    """Write files of so many gigabytes in all, then let them through the reader."""
    with tempfile.TemporaryDirectory(prefix="fdml-reader-") as place:
        progress(f"writing {gigabytes:g} GB of Parquet")
        size, rows = _write_files(Path(place), gigabytes * 1e9)
        progress(f"reading {rows:,} rows")
        found = in_own_process(_read, Path(place))
    if found["rows"] != rows:
        raise InvariantBroken(f"{rows} rows were written, {found['rows']} came out of the reader")
    results = [
        row("opening and learning from the rows", [found["fitting"]], "seconds"),
        row("encoding the rows", [found["encoding"]], "seconds"),
        row("rows encoded", [rows / found["encoding"]], "rows/s"),
        row("reading process", [found["peak"]], "MiB"),
    ]
    ratios = {"2 GB/peak memory": spread([TWO_GIGABYTES / found["peak"]]) | {"target": 1.0}}
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
    rows = sum(row_count(chunk) for chunk in source.chunks())
    ended = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEBIBYTE
    return {"rows": rows, "fitting": fitted - began, "encoding": ended - fitted, "peak": peak}
