"""A table in many Parquet files and in one, for tests of workers that read."""

from __future__ import annotations

import datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fdml.data.rows import DenseRows, plain_rows
from fdml.settings.data import DataSettings

ROWS = 1_200
NAMED = {"id": "user", "label": "paid", "weight": "share"}


def sample(rows=ROWS):
    """Rows with everything that is learned from: scales, missing numbers, categories, dates."""
    chance = np.random.default_rng(3)
    first = datetime.date(2020, 1, 1)
    return pa.table(
        {
            "user": [f"u{number:05d}é" for number in chance.permutation(rows)],
            "wide": chance.lognormal(2, 3, rows),
            "income": pa.array(chance.normal(size=rows), mask=chance.random(rows) < 0.2),
            "count": chance.integers(0, 50, rows),
            "city": [f"city {number}" for number in chance.integers(0, 30, rows)],
            "joined": [first + datetime.timedelta(int(days)) for days in chance.integers(0, 2000, rows)],
            "paid": chance.integers(0, 2, rows),
            "share": chance.random(rows) + 0.1,
        }
    )


def in_files(table, folder, files):
    """The rows in so many files of different sizes, one of them without rows."""
    folder.mkdir(parents=True)
    inner = np.sort(np.random.default_rng(files).choice(len(table), files - 2, replace=False))
    bounds = [0, *inner.tolist(), len(table), len(table)]
    for number, (start, stop) in enumerate(pairwise(bounds)):
        pq.write_table(table.slice(start, stop - start), folder / f"rows-{number:05d}.parquet", row_group_size=50)
    return DataSettings(path=folder, **NAMED)


def in_one_file(table, path):
    """The same rows in one file."""
    pq.write_table(table, path)
    return DataSettings(path=path, **NAMED)


def bits(rows):
    """The arrays of rows as bytes."""
    plain = plain_rows(rows)
    arrays = plain if isinstance(plain, DenseRows) else plain[:3]
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


def write_csv_files(table, folder):
    """The rows in three CSV files."""
    folder.mkdir()
    step = -(-len(table) // 3)
    for number in range(3):
        pa.csv.write_csv(table.slice(number * step, step), folder / f"rows-{number}.csv")
    return DataSettings(path=folder, **NAMED)
