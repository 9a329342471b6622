"""Normalisation of an id column: each value becomes a text that is the same at every party.

Whole numbers become 7, also where they are stored as 7.0. Dates become 2026-11-15. Timestamps become
2026-11-15T10:00:00; with a time zone they are in UTC and end in Z; without one, midnight is only the date.
"""

from __future__ import annotations

import unicodedata
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from fdml.data.column_types import Column, is_text, plain
from fdml.errors import DataError
from fdml.settings.data import IdSettings

Form = Literal["NFC", "NFKC"]
"""Unicode's normal forms that an id may be put into."""
LISTED = 5
"""How many rows an error gives as examples."""


def normalise(name: str, given: Column, settings: IdSettings, first: int = 0) -> Any:
    """A column of ids as a large_string array; a missing one (null, NaN, empty text) is null.

    Errors count its rows from number `first` on.
    """
    column = plain(given)
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    texts = _texts(name, whole, settings, first)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)


def _texts(name: str, column: Any, settings: IdSettings, first: int) -> Any:
    kind = column.type
    if is_text(kind):
        return _normal(column.cast(pa.large_string()), settings)
    if pat.is_floating(kind):
        return _whole_floats(name, column, first)
    if pat.is_decimal(kind):
        _refuse_fractions(name, column, first)
        widest = pa.decimal256(76, 0) if pat.is_decimal256(kind) else pa.decimal128(38, 0)
        return column.cast(widest).cast(pa.large_string())
    if pat.is_integer(kind) or pat.is_null(kind):
        return column.cast(pa.large_string())
    if pat.is_date(kind):
        return column.cast(pa.date32()).cast(pa.large_string())
    if pat.is_timestamp(kind):
        return _moments(column)
    raise DataError(f"id column {name!r} holds {kind}; make it whole numbers, text or dates at every party")


def _normal(texts: Any, settings: IdSettings) -> Any:
    """Unicode form, case, white space, numbers. Lower case may undo the form, so the form is applied again after it."""
    form = None if settings.unicode == "keep" or pc.all(pc.string_is_ascii(texts)).as_py() else settings.unicode
    if form is not None:
        texts = _in_form(texts, form)
    if settings.case == "lower":
        texts = pc.utf8_lower(texts)
        texts = texts if form is None else _in_form(texts, form)
    if settings.trim:
        texts = pc.utf8_trim_whitespace(texts)
    return _plain_numbers(texts) if settings.numbers == "all" else texts


def _in_form(texts: Any, form: Form) -> Any:
    """By Python's unicodedata: pyarrow before 26 decomposes and does not compose again, so ids would not match."""
    foreign = pc.fill_null(pc.invert(pc.string_is_ascii(texts)), False)
    composed = [unicodedata.normalize(form, text) for text in texts.filter(foreign).to_pylist()]
    return pc.replace_with_mask(texts, foreign, pa.array(composed, pa.large_string()))


def _plain_numbers(texts: Any) -> Any:
    texts = pc.replace_substring_regex(texts, r"^[+-]?0+(?:\.0+)?$", "0")
    return pc.replace_substring_regex(texts, r"^(?:\+|(-))?0*([1-9][0-9]*)(?:\.0+)?$", r"\1\2")


def _whole_floats(name: str, column: Any, first: int) -> Any:
    exact = 2.0 ** (np.finfo(column.type.to_pandas_dtype()).nmant + 1)
    doubles = column.cast(pa.float64())
    present = pc.if_else(pc.is_nan(doubles), pa.scalar(None, pa.float64()), doubles)
    large = pc.greater(pc.abs(present), exact)
    if pc.any(large).as_py():
        raise DataError(
            f"id column {name!r} holds {column.type} beyond {exact:.0f} in data rows {examples(large, first)}, where "
            f"whole numbers are no longer exact; make it whole numbers or text at every party"
        )
    _refuse_fractions(name, present, first)
    return present.cast(pa.int64()).cast(pa.large_string())


def _refuse_fractions(name: str, column: Any, first: int) -> None:
    broken = pc.not_equal(pc.floor(column), column)
    count = pc.sum(broken).as_py()
    if count:
        raise DataError(
            f"id column {name!r} holds {column.type} with a fraction in {count} rows, among them data rows "
            f"{examples(broken, first)}; make it whole numbers or text at every party"
        )


def _moments(column: Any) -> Any:
    texts = column.cast(pa.timestamp(column.type.unit)).cast(pa.large_string())
    texts = pc.replace_substring(texts, " ", "T")
    texts = pc.replace_substring_regex(texts, r"\.0+$", "")
    texts = pc.replace_substring_regex(texts, r"(\.[0-9]*[1-9])0+$", r"\1")
    if column.type.tz is None:
        return pc.replace_substring_regex(texts, r"T00:00:00$", "")
    return pc.binary_join_element_wise(texts, *(pa.scalar(text, pa.large_string()) for text in ("Z", "")))


def examples(mask: Any, first: int = 0) -> str:
    """The first data rows where a mask is true, counted from 1; those of the mask come after `first` others."""
    found = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
    return ", ".join(str(first + row + 1) for row in found[:LISTED].tolist())
