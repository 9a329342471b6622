"""Types of columns, and the two kinds of columns that are neither features nor ids: labels and weights.

A value is missing if it is null, NaN or empty text. Labels and weights may not be missing. Errors count data rows from
1, after the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from numpy.typing import NDArray

from fdml.errors import DataError, LabelError

Column = Any
"""A pyarrow array, whole or in chunks; pyarrow has no types to name here."""
ColumnType = Literal["text", "number", "bool"]
"""What a column holds, however it is stored."""


def plain_type(kind: Any) -> Any:
    """The type of the values, whatever dictionary they are stored with."""
    return kind.value_type if pat.is_dictionary(kind) else kind


def plain(column: Column) -> Column:
    """The column without dictionary encoding and without string views: its values are the same."""
    if pat.is_dictionary(column.type) and pat.is_string_view(column.type.value_type):  # Arrow has no cast of these
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return pa.chunked_array([_looked_up(chunk) for chunk in chunks], pa.large_string())
    whole = column.cast(plain_type(column.type)) if pat.is_dictionary(column.type) else column
    return whole.cast(pa.large_string()) if pat.is_string_view(whole.type) else whole


def _looked_up(column: Any) -> Any:
    return column.dictionary.cast(pa.large_string()).take(column.indices)


def is_text(kind: Any) -> bool:
    """Whether values of this type are text."""
    return bool(pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind))


def is_number(kind: Any) -> bool:
    """Whether values of this type are numbers; bool is not."""
    return bool(pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind))


def is_temporal(kind: Any) -> bool:
    """Whether values of this type are dates, times or spans of time."""
    return bool(pat.is_date(kind) or pat.is_timestamp(kind) or pat.is_time(kind) or pat.is_duration(kind))


def column_type(kind: Any) -> ColumnType:
    """The type of a column by what its values are; a column that is empty in every row counts as text."""
    if pat.is_dictionary(kind):
        return column_type(kind.value_type)
    if pat.is_boolean(kind):
        return "bool"
    return "number" if is_number(kind) else "text"


def missing(column: Column) -> NDArray[np.bool_]:
    """Which values are null, NaN or empty text."""
    gone = pc.is_null(column, nan_is_null=pat.is_floating(column.type))
    if is_text(column.type):
        gone = pc.or_(gone, pc.fill_null(pc.equal(column, ""), True))
    mask: NDArray[np.bool_] = gone.to_numpy(zero_copy_only=False)
    return mask


def numbers(column: Column) -> NDArray[np.float64]:
    """A column of numbers as float64, null as NaN."""
    values: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def labels_of(name: str, given: Column) -> NDArray[np.generic]:
    """The labels as the file has them: numbers, text or bool."""
    column = plain(given)
    what = f"label column {name!r}"
    if not (is_number(column.type) or is_text(column.type) or pat.is_boolean(column.type)):
        raise LabelError(f"{what} holds {column.type}; labels are numbers, text or true and false")
    _refuse_missing(what, column, LabelError)
    if is_text(column.type):
        return np.array(column.to_pylist(), dtype=np.str_)
    labels: NDArray[np.generic] = (
        numbers(column) if pat.is_decimal(column.type) else column.to_numpy(zero_copy_only=False)
    )
    if not np.isfinite(labels).all():
        row = int(np.argmin(np.isfinite(labels)))
        raise LabelError(f"{what} is no finite number in data row {row + 1}; correct or leave out this row")
    return labels


def weights_of(name: str, column: Column) -> NDArray[np.float64]:
    """The rows' weights, none below zero and not all zero."""
    what = f"weight column {name!r}"
    if not is_number(column.type):
        raise DataError(f"{what} holds {column.type}; weights are numbers")
    _refuse_missing(what, column, DataError)
    weights = numbers(column)
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{what} is no finite number, zero or more, in data row {row + 1}; correct it")
    if not weights.any():
        raise DataError(f"{what} is zero in every row; give some row a weight above zero")
    return weights


def groups_of(name: str, given: Column) -> NDArray[np.int64]:
    """The number of each row's group: rows with the same value are in one."""
    column = plain(given)
    _refuse_missing(f"group column {name!r}", column, DataError)
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    numbers: NDArray[np.int64] = pc.dictionary_encode(whole).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def repeated(names: Sequence[str]) -> str | None:
    """The first name that occurs twice, if any does."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _refuse_missing(what: str, column: Column, error: type[DataError]) -> None:
    gone = missing(column)
    if gone.any():
        raise error(
            f"{what} has no value in data row {int(np.argmax(gone)) + 1} ({int(gone.sum())} such rows); "
            f"fill it in or leave out these rows"
        )
