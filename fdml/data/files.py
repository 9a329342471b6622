"""CSV and Parquet files, read in batches.

A CSV file does not say what its columns hold. Each is taken as the first of
`LADDER` that all its values fit, as pyarrow does it for a whole file in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fdml.data.column_types import is_text
from fdml.errors import DataError
from fdml.settings import Format

LADDER = (
    pa.null(),
    pa.int64(),
    pa.bool_(),
    pa.date32(),
    pa.time32("s"),
    pa.timestamp("s"),
    pa.timestamp("ns"),
    pa.timestamp("s", "UTC"),
    pa.timestamp("ns", "UTC"),
    pa.float64(),
    pa.string(),
    pa.binary(),
)
CSV_BLOCK = 4 * 2**20
"""Bytes of text that are parsed at a time; some tens of blocks are in memory at once."""
PARQUET_BATCH = 2**15
"""Rows that are read at a time."""


class FrameFile(Protocol):
    """A file of named columns."""

    @property
    def names(self) -> list[str]:
        """All its columns."""
        ...

    def settle(self, columns: Sequence[str], /) -> int:
        """Find out what these columns hold, before they are read; how many rows there are."""
        ...

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in pyarrow record batches, one after the other."""
        ...


def open_frame(path: Path, kind: Format, text: Iterable[str]) -> FrameFile:
    """Open a CSV or Parquet file; the columns in `text` of a CSV file are read as they are written."""
    return ParquetFile(path) if kind == "parquet" else CsvFile(path, text)


class ParquetFile:
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened() as file:
            self.names: list[str] = list(file.schema_arrow.names)
            self._count = int(file.metadata.num_rows)

    def settle(self, _columns: Sequence[str], /) -> int:
        """Nothing to find out; how many rows there are."""
        return self._count

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in record batches."""
        with self._opened() as file:
            yield from file.iter_batches(PARQUET_BATCH, columns=list(columns))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with pa.parquet.ParquetFile(self._path) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"cannot be read as Parquet: {error}") from None


class CsvFile:
    """A CSV file, plain or compressed."""

    def __init__(self, path: Path, text: Iterable[str]) -> None:
        self._path = path
        self._types = {name: pa.string() for name in text}
        self._fixed = frozenset(self._types)
        with _csv_errors(), self._reader([]) as reader:
            self._found = reader.schema
        self.names: list[str] = list(self._found.names)

    @property
    def text_columns(self) -> list[str]:
        """The columns that hold text, of those that are settled."""
        return [name for name, kind in self._types.items() if is_text(kind)]

    def settle(self, columns: Sequence[str], /) -> int:
        """Loosen the types that the first block suggests until all blocks fit; how many rows there are."""
        for name in columns:
            self._types.setdefault(name, self._found.field(name).type)
        with _csv_errors():
            while True:
                try:
                    return sum(len(batch) for batch in self._read(columns))
                except pa.ArrowInvalid as error:
                    self._loosen(error)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in record batches; they must have been settled."""
        with _csv_errors():
            yield from self._read(columns)

    def _read(self, columns: Sequence[str]) -> Iterator[Any]:
        with self._reader(columns) as reader:
            yield from reader

    def _reader(self, columns: Sequence[str]) -> Any:
        options = pa.csv.ConvertOptions(column_types=self._types, include_columns=list(columns))
        return pa.csv.open_csv(
            self._path, read_options=pa.csv.ReadOptions(block_size=CSV_BLOCK), convert_options=options
        )

    def _loosen(self, error: pa.ArrowInvalid) -> None:
        """Go one step on with the column that an error of conversion names; pass on any other error."""
        found = re.search(r"In CSV column #(\d+): .*conversion error", str(error))
        name = None if found is None else self.names[int(found[1])]
        if name is None or name in self._fixed or self._types[name] not in LADDER[:-1]:
            raise error
        self._types[name] = LADDER[LADDER.index(self._types[name]) + 1]


@contextmanager
def _csv_errors() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as CSV in UTF-8 with commas: {error}") from None
