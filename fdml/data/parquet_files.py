"""Parquet files as one table: a file, or the files of a folder one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from fdml.data.column_types import plain_type
from fdml.data.locations import FilePart, folder_types
from fdml.data.table_source import rows_per_batch
from fdml.errors import DataError


class ParquetFiles:
    """One or many Parquet files with the same columns; their footers are read when it is made.

    A column that has several types in the files is read as the one that holds them all.
    """

    def __init__(self, parts: Sequence[FilePart], text: Iterable[str] = ()) -> None:
        self._parts = parts
        self._given = folder_types(parts, text)
        self._types: dict[str, Any] = {}
        self._counts: list[int] = []
        for part in parts:
            with _opened(part) as file:
                self._counts.append(int(file.metadata.num_rows))
                self._merge(part, file.schema_arrow)
        self.names: list[str] = [*self._types, *self._given]
        self.text_columns: list[str] = []

    def settle(self, _columns: Sequence[str], /) -> int:
        """The number of rows; the files name their types themselves."""
        return sum(self._counts)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns in record batches."""
        stored = [name for name in columns if name not in self._given]
        for part, count in zip(self._parts, self._counts, strict=True):
            if count:
                yield from self._batches(part, count, columns, stored)

    def _batches(self, part: FilePart, count: int, columns: Sequence[str], stored: list[str]) -> Iterator[Any]:
        if not stored:
            yield from with_values(part, pa.table({"": pa.nulls(count)}), columns, self._given).to_batches()
            return
        with _opened(part) as file:
            for batch in file.iter_batches(rows_per_batch(len(stored)), columns=stored):
                yield self._as_asked(part, batch, columns)

    def _as_asked(self, part: FilePart, batch: Any, columns: Sequence[str]) -> Any:
        kinds = {name: self._types[name] for name in batch.schema.names}
        if any(batch.schema.field(name).type != kind for name, kind in kinds.items()):
            cast = [batch.column(name).cast(kind, safe=False) for name, kind in kinds.items()]
            batch = pa.RecordBatch.from_arrays(cast, names=list(kinds))
        return with_values(part, batch, columns, self._given)

    def _merge(self, part: FilePart, schema: Any) -> None:
        """Check a file's columns against those of the first, and widen the types to hold them all."""
        for name in schema.names:
            if name in self._given:
                raise DataError(f"column {name!r} is in {part.name!r} and in the names of its folders; rename one")
        if not self._counts[1:]:
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


def with_values(part: FilePart, batch: Any, columns: Sequence[str], given: dict[str, Any]) -> Any:
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
