"""Parquet files as one table: a file, or the files of a folder one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from fdml.data.column_types import plain_type
from fdml.data.locations import FilePart, folder_types
from fdml.data.table_source import rows_per_batch
from fdml.errors import DataError

PIECE_ROWS = 2**20
"""Rows of a piece of a file, about: row groups are never cut."""


@dataclass(frozen=True)
class ParquetPiece:
    """One file of a table, or some row groups of it: a table of its own."""

    part: FilePart
    first: int
    """The number of its first row in the whole table."""
    count: int
    types: Mapping[str, Any]
    """What stored columns are read as, in all files alike."""
    given: Mapping[str, Any]
    """The types of columns that the names of folders give."""
    groups: tuple[int, int] | None = None
    """The first of its row groups and the one after its last; None is all of the file."""

    @property
    def names(self) -> list[str]:
        """All its columns."""
        return [*self.types, *self.given]

    @property
    def text_columns(self) -> list[str]:
        """None: the files name their types themselves."""
        return []

    def settle(self, _columns: Sequence[str], /) -> int:
        """The number of rows."""
        return self.count

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in record batches."""
        stored = [name for name in columns if name not in self.given]
        if not self.count:
            return
        if not stored:
            yield from with_values(self.part, pa.table({"": pa.nulls(self.count)}), columns, self.given).to_batches()
            return
        groups = None if self.groups is None else list(range(*self.groups))
        with _opened(self.part) as file:
            for batch in file.iter_batches(rows_per_batch(len(stored)), row_groups=groups, columns=stored):
                yield self._as_asked(batch, columns)

    def _as_asked(self, batch: Any, columns: Sequence[str]) -> Any:
        kinds = {name: self.types[name] for name in batch.schema.names}
        if any(batch.schema.field(name).type != kind for name, kind in kinds.items()):
            cast = [batch.column(name).cast(kind, safe=False) for name, kind in kinds.items()]
            batch = pa.RecordBatch.from_arrays(cast, names=list(kinds))
        return with_values(self.part, batch, columns, self.given)


class ParquetFiles:
    """One or many Parquet files with the same columns; their footers are read when it is made.

    A column that has several types in the files is read as the one that holds them all.
    """

    def __init__(self, parts: Sequence[FilePart], text: Iterable[str] = ()) -> None:
        self._parts = parts
        self._given = folder_types(parts, text)
        self._types: dict[str, Any] = {}
        self._groups: list[list[int]] = []
        """The rows of each row group of each file."""
        for part in parts:
            with _opened(part) as file:
                about = file.metadata
                self._groups.append([int(about.row_group(at).num_rows) for at in range(about.num_row_groups)])
                self._merge(part, file.schema_arrow)
        self.names: list[str] = [*self._types, *self._given]
        self.text_columns: list[str] = []

    def settle(self, _columns: Sequence[str], /) -> int:
        """The number of rows; the files name their types themselves."""
        return sum(map(sum, self._groups))

    @property
    def types(self) -> dict[str, Any]:
        """What all columns are read as."""
        return {**self._types, **self._given}

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in record batches."""
        first = 0
        for part, groups in zip(self._parts, self._groups, strict=True):
            piece = ParquetPiece(part, first, sum(groups), self._types, self._given)
            yield from piece.batches(columns)
            first += piece.count

    def pieces(self) -> list[ParquetPiece]:
        """All rows in pieces: a file each, or where it is large some of its row groups. None is empty."""
        found, first = [], 0
        for part, groups in zip(self._parts, self._groups, strict=True):
            for start, stop in _spans(groups):
                rows, whole = sum(groups[start:stop]), stop - start == len(groups)
                chosen = None if whole else (start, stop)
                found.append(ParquetPiece(part, first, rows, self._types, self._given, chosen))
                first += rows
        return [piece for piece in found if piece.count]

    def _merge(self, part: FilePart, schema: Any) -> None:
        """Check a file's columns against those of the first, and widen the types to hold them all."""
        for name in schema.names:
            if name in self._given:
                raise DataError(f"column {name!r} is in {part.name!r} and in the names of its folders; rename one")
        if not self._groups[1:]:
            names = list(schema.names)
            for name in names:
                if names.count(name) > 1:
                    raise DataError(f"two columns are named {name!r}; rename one")
            self._types = dict(zip(names, schema.types, strict=True))
            return
        check_same_names(part.name, schema.names, list(self._types), self._parts[0].name)
        for name, kind in zip(schema.names, schema.types, strict=True):
            self._types[name] = _common(name, self._types[name], kind, part)


def check_same_names(part: str, found: Sequence[str], wanted: Sequence[str], first: str) -> None:
    """Raise unless a file has the columns of the first one, in any order."""
    for name in wanted:
        if name not in found:
            raise DataError(f"{part!r} has no column {name!r}, but {first!r} has; give all files the same columns")
    for name in found:
        if name not in wanted:
            raise DataError(f"{part!r} has a column {name!r}, but {first!r} has none; give all files the same columns")


def _spans(groups: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Row groups that follow each other, about `PIECE_ROWS` rows at a time."""
    start = rows = 0
    for at, count in enumerate(groups):
        if rows and rows + count > PIECE_ROWS:
            yield start, at
            start, rows = at, 0
        rows += count
    yield start, len(groups)


def with_values(part: FilePart, batch: Any, columns: Sequence[str], given: Mapping[str, Any]) -> Any:
    """The columns in the order asked for, those that folders give among them."""
    for name in columns:
        if name in given:
            value = part.values[name]
            scalar = pa.scalar(value, pa.string()).cast(given[name])
            batch = batch.append_column(name, pa.repeat(scalar, len(batch)))
    return batch.select(list(columns))


def _common(name: str, one: Any, other: Any, part: FilePart) -> Any:
    if one == other:
        return one
    schemas = [pa.schema([(name, plain_type(kind))]) for kind in (one, other)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(name).type
    except pa.ArrowException:
        raise DataError(
            f"column {name!r} holds {other} in {part.name!r} but {one} in files before it; give all files the same type"
        ) from None


@contextmanager
def _opened(part: FilePart) -> Iterator[Any]:
    try:
        with part.open() as stored, pa.parquet.ParquetFile(stored) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        where = f"{part.name} " if part.values or "/" in part.name else ""
        raise DataError(f"{where}cannot be read as Parquet: {error}") from None
