"""Fitting of columns: categories, or mean and deviation, learned from training rows where settings do not give them.

Rows come batch by batch and need not fit into memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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
from fdml.data.column_types import Column, ColumnType, column_type
from fdml.errors import DataError
from fdml.settings_data import DataSettings


class Fit(Protocol):
    """One column while its feature is learned."""

    def add(self, column: Column, first: int, /) -> None:
        """Learn from a batch; `first` is the number of its first row in the file."""
        ...

    def feature(self) -> Feature:
        """The feature, after the last batch."""
        ...


def fit_for(name: str, column: Column, settings: DataSettings) -> Fit:
    """The fit for a column, by the settings and the type of its first batch."""
    if name in settings.hashed:
        return KnownFit(Hashed(name, settings.hash_size, column_type(column.type)))
    if name in settings.categories:
        return KnownFit(OneHot(name, settings.categories[name], column_type(column.type)))
    if name in settings.ranges and not is_numeric(column.type):
        raise DataError(f"column {name!r} has data.ranges but holds {column.type}; correct the file, or leave it out")
    if name in settings.categorical or not is_numeric(column.type):
        return OneHotFit(name, column_type(column.type))
    return NumberFit(name, settings)


class KnownFit:
    """A column whose feature follows from settings: there is nothing to learn."""

    def __init__(self, feature: Feature) -> None:
        self._feature = feature

    def add(self, _column: Column, _first: int, /) -> None:
        """Ignore the batch."""

    def feature(self) -> Feature:
        """The feature."""
        return self._feature


class OneHotFit:
    """A column of categories: which ones there are."""

    def __init__(self, name: str, kind: ColumnType) -> None:
        self._name = name
        self._type = kind
        self._seen: set[str] = set()

    def add(self, column: Column, _first: int, /) -> None:
        """Note the batch's categories."""
        self._seen.update(coded(self._name, column)[1])

    def feature(self) -> Feature:
        """The feature, its categories in sorted order."""
        return OneHot(self._name, tuple(sorted(self._seen)), self._type)


@dataclass(frozen=True)
class Moments:
    """Count, mean and variance of some numbers; of none all are zero."""

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def with_more(self, more: Moments) -> Moments:
        """The moments of both together; exactly this one's where `more` has no numbers."""
        if not self.count or not more.count:
            return self if self.count else more
        count = self.count + more.count
        share, gap = more.count / count, more.mean - self.mean
        within = (1 - share) * self.variance + share * more.variance
        return Moments(count, self.mean + share * gap, within + share * (1 - share) * gap * gap)


class NumberFit:
    """A column of numbers: mean and deviation, with missing numbers filled in."""

    def __init__(self, name: str, settings: DataSettings) -> None:
        self._name = name
        self._settings = settings
        self._moments = Moments()
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
            self._moments = self._moments.with_more(Moments(len(present), float(present.mean()), float(present.var())))
            self._least, self._most = min(self._least, float(present.min())), max(self._most, float(present.max()))

    def feature(self) -> Feature:
        """The feature; a constant column is only centred."""
        if self._missing and self._settings.missing == "error":
            raise no_value(self._name, self._first_missing, self._missing)
        mean = self._moments.mean if self._settings.missing == "mean" else 0.0
        fill = None if self._settings.missing == "error" else mean
        if self._name in self._settings.ranges:
            return NumberInRange(self._name, fill, *self._settings.ranges[self._name])
        if self._settings.scale == "none":
            return Number(self._name, fill)
        least, most, moments = self._least, self._most, self._moments
        if self._missing:
            least, most = min(least, mean), max(most, mean)
            moments = moments.with_more(Moments(self._missing, mean))
        if least == most:
            return Number(self._name, fill, least)
        return Number(self._name, fill, moments.mean, float(np.sqrt(moments.variance)) or 1.0)
