"""CSV and Parquet files, read in batches.

A CSV file names no types. A column's type is the first of `LADDER` that fits all its values, which is pyarrow's own
rule for a file that is read at once.
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
from fdml.settings_data import Format

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
"""Bytes of text per parsed block; some tens of blocks are in memory at once."""
PARQUET_BATCH = 2**15
"""Rows per batch."""
_TELLABLE = re.compile(
    r"Empty CSV file|Row #\d+|In CSV column #\d+|Expected \d+ columns, got \d+|CSV conversion error to \w+|"
    r"invalid UTF8 data|no column named|straddling object straddles two block boundaries"
)
"""What Arrow says of a CSV file without quoting a cell."""


class FrameFile(Protocol):
    """A file of named columns."""

    @property
    def names(self) -> list[str]:
        """All its columns."""
        ...

    def settle(self, columns: Sequence[str], /) -> int:
        """Settle the types of these columns before they are read; returns the number of rows."""
        ...

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in pyarrow record batches, in file order."""
        ...


def open_frame(path: Path, kind: Format, text: Iterable[str]) -> FrameFile:
    """Open a CSV or Parquet file; in CSV the columns in `text` are read as text whatever they look like."""
    return ParquetFile(path) if kind == "parquet" else CsvFile(path, text)


class ParquetFile:
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened() as file:
            self.names: list[str] = list(file.schema_arrow.names)
            self._count = int(file.metadata.num_rows)

    def settle(self, _columns: Sequence[str], /) -> int:
        """The number of rows; the file names its types itself."""
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
        """The settled columns that hold text."""
        return [name for name, kind in self._types.items() if is_text(kind)]

    def settle(self, columns: Sequence[str], /) -> int:
        """Loosen the types of the first block until all blocks fit; returns the number of rows."""
        for name in columns:
            self._types.setdefault(name, self._found.field(name).type)
        with _csv_errors():
            while True:
                try:
                    return sum(len(batch) for batch in self._read(columns))
                except pa.ArrowInvalid as error:
                    self._loosen(error)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in record batches; settle them before."""
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
        """Try the next type of `LADDER` for the column in a conversion error; raise any other error."""
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
        raise DataError(f"cannot be read as CSV in UTF-8 with commas: {_without_cells(error)}") from None


def _without_cells(error: Exception) -> str:
    """Where and why a CSV file cannot be read: Arrow's own text quotes the row."""
    if isinstance(error, OSError) and not isinstance(error, pa.ArrowException):
        return str(error)
    return ", ".join(_TELLABLE.findall(str(error))) or "see that every line has as many columns as the first"
