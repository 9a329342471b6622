"""CSV files as one table: a file, or the files of a folder one after the other.

A CSV file names no types. A column's type is the first of `LADDER` that fits all its values in all files, which is
pyarrow's own rule for a file that is read at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv

from fdml.data.column_types import is_text
from fdml.data.locations import FilePart, folder_types
from fdml.data.parquet_files import check_same_names, with_values
from fdml.errors import DataError

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
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""What commonly stands between cells, and how an error names it."""
_HEAD = 2**16
"""Bytes of a file that are looked at for its first line."""
_TELLABLE = re.compile(
    r"Empty CSV file|Row #\d+|In CSV column #\d+|Expected \d+ columns, got \d+|CSV conversion error to \w+|"
    r"invalid UTF8 data|no column named|straddling object straddles two block boundaries"
)
"""What Arrow says of a CSV file without quoting a cell."""


@dataclass(frozen=True)
class CsvForm:
    """How the text of a CSV file is written."""

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"

    def __str__(self) -> str:
        """For errors."""
        between = DELIMITERS.get(self.delimiter, f"{self.delimiter!r} between cells")
        return f"CSV in {self.encoding.upper()} with {between}"


class CsvFiles:
    """One or many CSV files with the same columns, plain or compressed; `text` names columns to read as text."""

    def __init__(self, parts: Sequence[FilePart], text: Iterable[str] = (), form: CsvForm | None = None) -> None:
        self._parts = parts
        self._form = form or CsvForm()
        self._fixed = frozenset(text)
        self._given = folder_types(parts, self._fixed)
        self._types = {name: pa.string() for name in self._fixed if name not in self._given}
        self._found = self._schema(parts[0])
        self._names = {part.path: list(self._found.names) for part in parts[:1]}
        for part in parts[1:]:
            names = list(self._schema(part).names)
            check_same_names(part.name, names, self._found.names, parts[0].name)
            self._names[part.path] = names
        for name in self._given:
            if name in self._found.names:
                raise DataError(f"column {name!r} is in the files and in the names of their folders; rename one")
        self.names: list[str] = [*self._found.names, *self._given]

    @property
    def text_columns(self) -> list[str]:
        """The settled columns that hold text."""
        return [name for name, kind in self._types.items() if is_text(kind)]

    def settle(self, columns: Sequence[str], /) -> int:
        """Loosen the types of the first block until all blocks fit; returns the number of rows."""
        own = self._own(columns)
        for name in own:
            self._types.setdefault(name, self._found.field(name).type)
        while True:
            counts: list[int] = []
            for part in self._parts:
                with self._errors(part):
                    try:
                        counts.append(sum(len(batch) for batch in self._read(part, own)))
                    except pa.ArrowInvalid as error:
                        self._loosen(error, self._names[part.path])
                        break
            else:
                return sum(counts)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in record batches; settle them before."""
        own = self._own(columns)
        for part in self._parts:
            with self._errors(part):
                for batch in self._read(part, own):
                    yield with_values(part, batch, columns, self._given)

    def _own(self, columns: Sequence[str]) -> list[str]:
        """The columns to read from the files; at least one, as only that tells how many rows there are."""
        return [name for name in columns if name not in self._given] or self.names[:1]

    def _schema(self, part: FilePart) -> Any:
        """The columns of a file with the types of its first block."""
        with self._errors(part):
            _check_first_line(part, self._form)
            with self._reader(part, []) as reader:
                return reader.schema

    def _read(self, part: FilePart, columns: Sequence[str]) -> Iterator[Any]:
        with self._reader(part, columns) as reader:
            yield from reader

    def _reader(self, part: FilePart, columns: Sequence[str]) -> Any:
        return pa.csv.open_csv(
            part.stream(),
            read_options=pa.csv.ReadOptions(block_size=CSV_BLOCK, encoding=self._form.encoding),
            parse_options=pa.csv.ParseOptions(delimiter=self._form.delimiter),
            convert_options=pa.csv.ConvertOptions(
                column_types=self._types, include_columns=list(columns), decimal_point=self._form.decimal
            ),
        )

    def _loosen(self, error: pa.ArrowInvalid, names: Sequence[str]) -> None:
        """Try the next type of `LADDER` for the column in a conversion error; raise any other error."""
        found = re.search(r"In CSV column #(\d+): .*conversion error", str(error))
        name = None if found is None else names[int(found[1])]
        if name is None or name in self._fixed or self._types[name] not in LADDER[:-1]:
            raise error
        self._types[name] = LADDER[LADDER.index(self._types[name]) + 1]

    @contextmanager
    def _errors(self, part: FilePart) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeError) as error:
            where = f"{part.name} " if "/" in part.name or len(self._parts) > 1 else ""
            raise DataError(f"{where}cannot be read as {self._form}: {_without_cells(error)}") from None


def _check_first_line(part: FilePart, form: CsvForm) -> None:
    """Raise where the first line says that the file is written in another way; it may be data, so it is not quoted."""
    with part.stream() as stream:
        line = stream.read(_HEAD).partition(b"\n")[0]
    if line.startswith((b"\xff\xfe", b"\xfe\xff")) and form.encoding.lower().startswith("utf-8"):
        raise DataError('it is written in UTF-16; set data.encoding = "utf-16"')
    if form.delimiter.encode() in line or form.encoding.lower().startswith(("utf-16", "utf-32")):
        return
    for other, name in DELIMITERS.items():
        if other.encode() in line:
            written = other.replace("\t", "\\t")
            between = DELIMITERS.get(form.delimiter, repr(form.delimiter))
            raise DataError(f'its first line has {name} and no {between}; set data.delimiter = "{written}"')


def _without_cells(error: Exception) -> str:
    """Where and why a CSV file cannot be read: Arrow's own text quotes the row."""
    if isinstance(error, UnicodeError):
        return "some bytes have no meaning in it; set data.encoding to the one it was written in"
    if isinstance(error, OSError) and not isinstance(error, pa.ArrowException):
        return str(error)
    told = ", ".join(_TELLABLE.findall(str(error))) or "see that every line has as many columns as the first"
    return f'{told}; set data.encoding = "latin-1", or the one it was written in' if "UTF8" in told else told
