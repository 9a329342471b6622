"""A fitted column: a number, a number in a known range, one feature per category, or hashed categories."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray
from pydantic import PositiveFloat, PositiveInt

from fdml.data.column_types import Column, ColumnType, is_number, is_temporal, is_text, missing, numbers, plain
from fdml.errors import DataError

LARGEST = float(np.finfo(np.float32).max)

Entries = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Each row's feature, at most one: its number inside the column (-1 for none) and its value."""


class Feature(Protocol):
    """One column, fitted."""

    @property
    def kind(self) -> str:
        """The name of its class in a JSON text."""
        ...

    @property
    def column(self) -> str:
        """The column's name."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its features."""
        ...

    def entries(self, column: Column, first: int = 0, /) -> Entries:
        """The features of these rows; `first` is the number of the first one in its file, for errors."""
        ...


@dataclass(frozen=True)
class Number:
    """A column of numbers: `(value - mean) / deviation`."""

    kind: ClassVar[str] = "number"
    column: str
    fill: float | None
    """What a missing number becomes, before scaling; None refuses it."""
    mean: float = 0.0
    deviation: PositiveFloat = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """The column's own name."""
        return (self.column,)

    def entries(self, column: Column, first: int = 0, /) -> Entries:
        """Every row has the one feature."""
        with np.errstate(over="ignore"):  # refused just below
            values = (_filled(self.column, column, self.fill, first) - self.mean) / self.deviation
        _refuse_infinite(self.column, values, first)
        return np.zeros(len(values), np.int32), values.astype(np.float32)


@dataclass(frozen=True)
class NumberInRange:
    """A column of numbers whose range is known beforehand: -1 at its low end, 1 at its high end, cut beyond."""

    kind: ClassVar[str] = "number_in_range"
    column: str
    fill: float | None
    """What a missing number becomes, before scaling; None refuses it."""
    low: float
    high: float

    @property
    def names(self) -> tuple[str, ...]:
        """The column's own name."""
        return (self.column,)

    def entries(self, column: Column, first: int = 0, /) -> Entries:
        """Every row has the one feature."""
        values = np.clip(_filled(self.column, column, self.fill, first), self.low, self.high)
        scaled = (values - self.low) / (self.high - self.low) * 2.0 - 1.0
        return np.zeros(len(values), np.int32), scaled.astype(np.float32)


@dataclass(frozen=True)
class OneHot:
    """A column of categories, one feature each."""

    kind: ClassVar[str] = "one_hot"
    column: str
    categories: tuple[str, ...]
    """As text, whatever the column's type; in the order of the features."""
    type: ColumnType = "text"
    """Of the column in training. A CSV file names no types, so text that looks like numbers must be read as text."""

    @property
    def names(self) -> tuple[str, ...]:
        """Like "city=Paris"."""
        return tuple(f"{self.column}={category}" for category in self.categories)

    def entries(self, column: Column, _first: int = 0, /) -> Entries:
        """A missing or unseen category gives no feature."""
        codes, values = coded(self.column, column)
        place = {category: number for number, category in enumerate(self.categories)}
        return _looked_up(codes, [place.get(value, -1) for value in values])


@dataclass(frozen=True)
class Hashed:
    """A column of categories, hashed to `size` features."""

    kind: ClassVar[str] = "hashed"
    column: str
    size: PositiveInt
    type: ColumnType = "text"
    """Of the column in training, as for `OneHot`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Like "city#17"."""
        return tuple(f"{self.column}#{bucket}" for bucket in range(self.size))

    def entries(self, column: Column, _first: int = 0, /) -> Entries:
        """A missing category gives no feature."""
        codes, values = coded(self.column, column)
        return _looked_up(codes, [bucket_of(self.column, value, self.size) for value in values])


def bucket_of(column: str, value: str, size: int) -> int:
    """The bucket a hashed value falls into."""
    digest = blake2b(f"{column}={value}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % size


def is_numeric(kind: Any) -> bool:
    """Whether a column is read as numbers. One without any value is: all its numbers are missing."""
    return is_number(kind) or bool(pat.is_null(kind))


def _filled(name: str, column: Column, fill: float | None, first: int) -> NDArray[np.float64]:
    """A column of numbers with the missing ones filled in, or an error where there is no fill."""
    values = present_or_nan(name, column, first)
    gone = np.isnan(values)
    if fill is None and gone.any():
        raise no_value(name, first + int(np.argmax(gone)), int(gone.sum()))
    return np.where(gone, fill or 0.0, values)


def no_value(name: str, row: int, count: int) -> DataError:
    """The error for missing numbers: the first row (counted from 0) and how many rows there are."""
    return DataError(
        f"column {name!r} has no value in data row {row + 1} ({count} such rows); "
        f'set data.missing = "indicator", "mean" or "zero"'
    )


def present_or_nan(name: str, column: Column, first: int = 0) -> NDArray[np.float64]:
    """A column of numbers, none infinite, NaN where one is missing."""
    if not is_numeric(column.type):
        raise DataError(
            f"column {name!r} held numbers in training but holds {column.type} here; "
            f"correct it, or name it in data.categorical"
        )
    values = numbers(column)
    _refuse_infinite(name, values, first)
    return values


def _refuse_infinite(name: str, values: NDArray[np.float64], first: int) -> None:
    huge = np.abs(values) > LARGEST
    if huge.any():
        row = int(np.argmax(huge))
        raise DataError(
            f"column {name!r} is infinite or too large for float32 in data row {first + row + 1}; correct it, or drop "
            f"the column through data.columns"
        )


def coded(name: str, given: Column) -> tuple[NDArray[np.int64], list[str]]:
    """Each row's category as an index into the list returned with it; -1 where it is missing."""
    column = plain(given)
    if pat.is_binary(column.type):
        raise DataError(
            f'column {name!r} holds bytes that are no UTF-8 text; set data.encoding = "latin-1" for such a CSV file, '
            f"or name the column in data.ignore"
        )
    if not (is_numeric(column.type) or is_text(column.type) or pat.is_boolean(column.type) or is_temporal(column.type)):
        raise DataError(
            f"column {name!r} holds {column.type}, which has no encoding; "
            f"name it in data.ignore, or convert it to numbers or text"
        )
    texts = column.cast(pa.large_string())
    values = (texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts).dictionary_encode()
    codes = np.where(missing(column), -1, values.indices.fill_null(-1).to_numpy(zero_copy_only=False))
    present = np.unique(codes[codes >= 0])
    categories: list[str] = values.dictionary.take(pa.array(present)).to_pylist()
    return np.where(codes < 0, -1, np.searchsorted(present, codes)), categories


def _looked_up(codes: NDArray[np.int64], places: list[int]) -> Entries:
    """The feature number of each code; code -1 reads the last entry, -1."""
    index = np.array([*places, -1], dtype=np.int32)[codes]
    return index, np.ones(len(index), np.float32)
