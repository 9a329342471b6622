"""Ids of a file's rows: texts that are the same at every party, without duplicates.

Errors and counts name data rows, counted from 1 after the header, and never an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fdml.data.column_types import Column
from fdml.data.id_normalisation import LISTED, normalise
from fdml.data.many_texts import duplicates, kept_texts
from fdml.errors import DataError
from fdml.settings.data import IdSettings
from fdml.storage.disk import Disk


@dataclass(frozen=True)
class IdCounts:
    """Counts of a file's rows by the state of their ids."""

    rows: int
    """All rows of the file."""
    missing: int
    """Rows without an id."""
    repeated: int
    """Rows with a duplicate id: an earlier row has the same."""
    dropped: int
    """Rows that were left out for either."""
    missing_at: tuple[int, ...]
    """Examples of rows without an id, counted from 1."""
    repeated_at: tuple[int, ...]
    """Examples of rows with a duplicate id, counted from 1."""


@dataclass(frozen=True)
class Ids:
    """The ids of the rows that are kept, all different."""

    texts: Any
    """A pyarrow large_string array without nulls, one per kept row."""
    rows: NDArray[np.int64]
    """The numbers of the kept rows in the file, ascending, from 0."""
    counts: IdCounts

    def as_objects(self) -> NDArray[np.object_]:
        """The texts as a numpy array of str."""
        objects: NDArray[np.object_] = self.texts.to_numpy(zero_copy_only=False)
        return objects


def unique_ids(columns: Mapping[str, Column], settings: IdSettings) -> Ids:
    """The normalised ids of all rows; rows without one and rows with a duplicate are dropped or refused."""
    return unique_texts([key_texts(columns, settings)], settings)


def unique_texts(parts: Iterable[Any], settings: IdSettings, disk: Disk | None = None) -> Ids:
    """The same of ids that are normalised and come in parts, null where there is none; many are kept on the disk."""
    missing: list[NDArray[np.int64]] = []
    ends = [0]

    def present() -> Iterator[Any]:
        for part in parts:
            missing.append(ends[-1] + np.flatnonzero(pc.is_null(part).to_numpy(zero_copy_only=False)))
            ends.append(ends[-1] + len(part))
            yield part.drop_null()

    found = kept_texts(present(), disk)
    absent = np.concatenate([np.zeros(0, np.int64), *missing])
    rows = np.delete(np.arange(ends[-1]), absent) if len(absent) else np.arange(ends[-1])
    again, single = duplicates(found)
    counts = IdCounts(
        rows=ends[-1],
        missing=len(absent),
        repeated=int(again.sum()),
        dropped=0,
        missing_at=_examples(absent),
        repeated_at=_examples(rows[again]),
    )
    check_counts(counts, settings)
    kept = single if settings.duplicates == "drop" else ~again
    if not kept.all():
        rows, found = rows[kept], found.filter(pa.array(kept))
    pa.default_memory_pool().release_unused()  # it would keep the peak of the memory used here
    return Ids(found, rows, replace(counts, dropped=ends[-1] - len(rows)))


def key_texts(columns: Mapping[str, Column], settings: IdSettings, first: int = 0) -> Any:
    """The normalised keys of all rows as a large_string array, duplicates and all; null where a column has no value.

    The rows are those from number `first` on.
    """
    return _joined([normalise(name, column, settings, first) for name, column in columns.items()])


def _joined(parts: list[Any]) -> Any:
    """One text per row. Several columns are joined so that different ids never become the same text."""
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*map(_escaped, parts), pa.scalar("|", pa.large_string()))


def _escaped(texts: Any) -> Any:
    """The texts with a backslash before every backslash and bar; copied only where there are some."""
    for character in ("\\", "|"):
        if pc.any(pc.match_substring(texts, character)).as_py():
            texts = pc.replace_substring(texts, character, f"\\{character}")
    return texts


def _examples(rows: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(row) + 1 for row in rows[:LISTED])


def check_counts(counts: IdCounts, settings: IdSettings) -> None:
    """Raise where rows without an id or with a duplicate one are not to be dropped."""
    if counts.missing and settings.missing == "error":
        raise DataError(
            f"{counts.missing} of {counts.rows} rows have no id, among them data rows {_listed(counts.missing_at)}; "
            f'fill the ids in, or set data.ids.missing = "drop"'
        )
    if counts.repeated and settings.duplicates == "error":
        raise DataError(
            f"it has {counts.repeated} rows with a duplicate id (of {counts.rows}), among them data rows "
            f"{_listed(counts.repeated_at)}; keep one row per id, add a column to data.id, "
            f'or set data.ids.duplicates = "first" or "drop"'
        )


def _listed(rows: tuple[int, ...]) -> str:
    return ", ".join(map(str, rows))
