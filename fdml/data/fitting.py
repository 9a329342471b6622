"""Fitting of columns: categories, or mean and deviation, learned from training rows where settings do not give them.

Rows come batch by batch and need not fit into memory. What several fits of one column have learned is merged without
rounding, so it makes no difference which rows each of them has seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from fdml.data.column_features import (
    Feature,
    Hashed,
    Number,
    NumberInRange,
    OneHot,
    coded,
    is_numeric,
    no_value,
    present_or_nan,
)
from fdml.data.column_types import Column, ColumnType, column_type, is_temporal
from fdml.data.date_features import DateInRange, DateNumber, DatePart, parts_of, since, unit_of
from fdml.data.exact_sums import ExactMoments
from fdml.data.feature_kinds import MissingIndicator
from fdml.errors import DataError
from fdml.settings.data import DataSettings

_NUMBERS_AS_TEXT = {
    "decimal comma": re.compile(r"[+-]?\d+(?:\.\d{3})*,\d+|[+-]?\d{1,3}(?:\.\d{3})+"),
    "percent sign": re.compile(r"[+-]?\d+(?:[.,]\d+)?\s*%"),
}
"""Numbers that only a person reads as such."""
_ID_LIKE = 100
"""From so many rows on, a text that is another one in every row is remarked on."""


class Fit(Protocol):
    """One column while its features are learned."""

    def add(self, column: Column, first: int, /) -> None:
        """Learn from a batch; `first` is the number of its first row in the file."""
        ...

    def state(self) -> dict[str, Any]:
        """What was learned so far, as JSON has it."""
        ...

    def merge(self, state: Mapping[str, Any], /) -> None:
        """Learn what another fit of the same column has learned from rows after these."""
        ...

    def features(self) -> tuple[Feature, ...]:
        """The features, after the last batch."""
        ...

    def remark(self) -> str:
        """What a person should know of the column; empty where it is as usual."""
        ...


def fit_for(name: str, kind: Any, settings: DataSettings) -> Fit:
    """The fit for a column, by the settings and the pyarrow type that it is read as."""
    if name in settings.hashed:
        return KnownFit(Hashed(name, settings.hash_size, column_type(kind)))
    if name in settings.categories:
        return KnownFit(OneHot(name, settings.categories[name], column_type(kind)))
    if name in settings.categorical:
        return OneHotFit(name, column_type(kind), settings)
    if is_temporal(kind):
        return DateFit(name, kind, settings)
    if name in settings.ranges and not is_numeric(kind):
        raise DataError(f"column {name!r} has data.ranges but holds {kind}; correct the file, or leave it out")
    return NumberFit(name, settings) if is_numeric(kind) else OneHotFit(name, column_type(kind), settings)


def many_hash_size(settings: DataSettings) -> int:
    """Of a column with many categories: a power of two from `max_categories` on, at least `hash_size`."""
    return int(max(settings.hash_size, 1 << (settings.max_categories - 1).bit_length()))


class KnownFit:
    """A column whose feature follows from settings: there is nothing to learn."""

    def __init__(self, feature: Feature) -> None:
        self._feature = feature

    def add(self, _column: Column, _first: int, /) -> None:
        """Ignore the batch."""

    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def merge(self, _state: Mapping[str, Any], /) -> None:
        """Nothing to learn."""

    def features(self) -> tuple[Feature, ...]:
        """The feature."""
        return (self._feature,)

    def remark(self) -> str:
        """Nothing: it was set so."""
        return ""


class OneHotFit:
    """A column of categories: which ones there are, up to `max_categories`; with more of them it is hashed."""

    def __init__(self, name: str, kind: ColumnType, settings: DataSettings) -> None:
        self._name = name
        self._type = kind
        self._settings = settings
        self._seen: set[str] = set()
        """Empty where there are many."""
        self._many = False
        self._rows = 0
        self._written_as = set(_NUMBERS_AS_TEXT)
        """The patterns that all categories fit so far."""

    def add(self, column: Column, _first: int, /) -> None:
        """Note the batch's categories."""
        codes, categories = coded(self._name, column)
        fitting = {name for name in self._written_as if all(map(_NUMBERS_AS_TEXT[name].fullmatch, categories))}
        self._note(categories, int((codes >= 0).sum()), fitting)

    def _note(self, categories: Iterable[str], rows: int, written_as: Iterable[str]) -> None:
        self._rows += rows
        self._written_as.intersection_update(written_as)
        if not self._many:
            self._seen.update(categories)
        if len(self._seen) > self._settings.max_categories:
            self._many, self._seen = True, set()

    def state(self) -> dict[str, Any]:
        """The categories, and whether there were too many to keep."""
        return {
            "seen": sorted(self._seen),
            "many": self._many,
            "rows": self._rows,
            "written as": sorted(self._written_as),
        }

    def merge(self, state: Mapping[str, Any], /) -> None:
        """Note the categories of other rows."""
        if state["many"]:
            self._many, self._seen = True, set()
        self._note(state["seen"], state["rows"], state["written as"])

    def features(self) -> tuple[Feature, ...]:
        """The feature, its categories in sorted order."""
        if self._type == "text" and self._name not in self._settings.categorical:
            self._refuse_numbers()
        if self._many:
            return (Hashed(self._name, many_hash_size(self._settings), self._type),)
        return (OneHot(self._name, tuple(sorted(self._seen)), self._type),)

    def remark(self) -> str:
        """That it is hashed, or that it looks like an id."""
        if self._many:
            return (
                f"column {self._name!r} has more than {self._settings.max_categories:,} categories and is hashed to "
                f"{many_hash_size(self._settings):,} features; if it is an id or free text, name it in data.ignore"
            )
        if self._type == "text" and len(self._seen) == self._rows >= _ID_LIKE:
            return (
                f"column {self._name!r} has another text in each of its {self._rows:,} rows, like an id or free text; "
                f"nothing can be learned from it: name it in data.ignore"
            )
        return ""

    def _refuse_numbers(self) -> None:
        """Raise where all categories are numbers that only a person reads as such."""
        if self._rows and "decimal comma" in self._written_as:
            raise DataError(
                f'column {self._name!r} holds numbers with a decimal comma, as text; set data.decimal = "," for CSV, '
                f"convert them elsewhere, or name the column in data.categorical"
            )
        if self._rows and "percent sign" in self._written_as:
            raise DataError(
                f"column {self._name!r} holds numbers with a percent sign, as text; write them without it, or name the "
                f"column in data.categorical"
            )


class NumberFit:
    """A column of numbers: mean and deviation, with missing numbers filled in."""

    def __init__(self, name: str, settings: DataSettings) -> None:
        self._name = name
        self._settings = settings
        self._moments = ExactMoments()
        self._least, self._most = np.inf, -np.inf
        self._missing = 0
        self._first_missing = 0

    def add(self, column: Column, first: int, /) -> None:
        """Add the batch to the moments."""
        values = present_or_nan(self._name, column, first)
        gone = np.isnan(values)
        if gone.any() and not self._missing:
            self._first_missing = first + int(np.argmax(gone))
        self._missing += int(gone.sum())
        present = values[~gone]
        if len(present):
            self._moments.add(present)
            self._least, self._most = min(self._least, float(present.min())), max(self._most, float(present.max()))

    def state(self) -> dict[str, Any]:
        """The moments, the ends, and what is missing."""
        return {
            "moments": self._moments.state(),
            "ends": [self._least, self._most],
            "missing": self._missing,
            "first missing": self._first_missing,
        }

    def merge(self, state: Mapping[str, Any], /) -> None:
        """Add the moments of later rows."""
        self._moments.merge(state["moments"])
        least, most = state["ends"]
        self._least, self._most = min(self._least, least), max(self._most, most)
        if state["missing"] and not self._missing:
            self._first_missing = state["first missing"]
        self._missing += state["missing"]

    def features(self) -> tuple[Feature, ...]:
        """The number, and where some are missing and that is to be seen, an indicator of it."""
        if self._missing and self._settings.missing == "error":
            raise no_value(self._name, self._first_missing, self._missing)
        if self._settings.missing == "indicator" and self._missing and self._moments.count:
            return self._number(), MissingIndicator(self._name)
        return (self._number(),)

    def remark(self) -> str:
        """Nothing: numbers are as usual."""
        return ""

    def _number(self) -> Number | NumberInRange:
        """A constant column is only centred."""
        fill = self._fill()
        if self._name in self._settings.ranges:
            return NumberInRange(self._name, fill, *self._settings.ranges[self._name])
        if self._settings.scale == "none":
            return Number(self._name, fill)
        least, most, moments = self._least, self._most, self._moments
        if self._missing:
            value = fill or 0.0
            least, most = min(least, value), max(most, value)
            moments.add_repeated(value, self._missing)
        if least == most:
            return Number(self._name, fill, least)
        return Number(self._name, fill, moments.mean, float(np.sqrt(moments.variance)) or 1.0)

    def _fill(self) -> float | None:
        """What a missing number becomes. With an indicator it follows from settings wherever scaling does."""
        rule = self._settings.missing
        if rule == "error":
            return None
        if rule == "indicator" and self._name in self._settings.ranges:
            return sum(self._settings.ranges[self._name]) / 2
        if rule == "zero" or (rule == "indicator" and self._settings.scale == "none"):
            return 0.0
        return self._moments.mean


class DateFit:
    """A column of dates or times: a number as any other, and the parts that come again."""

    def __init__(self, name: str, kind: Any, settings: DataSettings) -> None:
        self._name = name
        self._type = kind
        self._number = NumberFit(name, settings)

    def add(self, column: Column, first: int, /) -> None:
        """Add the batch to the moments of the number."""
        self._number.add(since(self._name, column), first)

    def state(self) -> dict[str, Any]:
        """Of the number."""
        return self._number.state()

    def merge(self, state: Mapping[str, Any], /) -> None:
        """Add the moments of later rows."""
        self._number.merge(state)

    def features(self) -> tuple[Feature, ...]:
        """The number, the parts, and perhaps the indicator."""
        number, *indicator = self._number.features()
        unit, dated = unit_of(self._type), DateInRange if isinstance(number, NumberInRange) else DateNumber
        scaled = {name: value for name, value in vars(number).items() if name != "column"}
        parts = (DatePart(self._name, part) for part in parts_of(self._type))
        return (dated(column=self._name, unit=unit, **scaled), *parts, *indicator)

    def remark(self) -> str:
        """Nothing: dates are as usual."""
        return ""
