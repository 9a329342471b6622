"""Features as trees want them: one for each column, categories by their numbers, NaN where a value is missing.

They are fitted as all features are, and then take the place of those: nothing is scaled or filled in, and there is no
indicator of missing numbers. A range that is known beforehand stays as it is, with what is missing in its middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fdml.data.column_features import Entries, Feature, Hashed, Number, OneHot, no_value, present_or_nan
from fdml.data.column_types import Column
from fdml.data.date_features import DateNumber, DatePart, since


@dataclass(frozen=True)
class PlainNumber(Number):
    """A column of numbers as they are; a missing one is NaN, or where there is no `fill` an error."""

    kind: ClassVar[str] = "plain_number"

    def entries(self, column: Column, first: int = 0, /) -> Entries:
        """Every row has the one feature."""
        values = present_or_nan(self.column, column, first)
        gone = np.isnan(values)
        if self.fill is None and gone.any():
            raise no_value(self.column, first + int(np.argmax(gone)), int(gone.sum()))
        return np.zeros(len(values), np.int32), values.astype(np.float32)


@dataclass(frozen=True)
class PlainDate(DateNumber):
    """A column of dates or times as days since 1970 or hours since midnight; a missing one is NaN."""

    kind: ClassVar[str] = "plain_date"

    def entries(self, column: Column, first: int = 0, /) -> Entries:
        """Every row has the one feature."""
        return PlainNumber(self.column, self.fill).entries(since(self.column, column), first)


@dataclass(frozen=True)
class CategoryNumber(OneHot):
    """A column of categories by their numbers; one that is missing or was not seen is NaN."""

    kind: ClassVar[str] = "category_number"

    @property
    def names(self) -> tuple[str, ...]:
        """The column's own name."""
        return (self.column,)

    def entries(self, column: Column, first: int = 0, /) -> Entries:
        """Every row has the one feature."""
        return _numbered(super().entries(column, first))


@dataclass(frozen=True)
class BucketNumber(Hashed):
    """A column of hashed categories by the numbers of their buckets; a missing one is NaN."""

    kind: ClassVar[str] = "bucket_number"

    @property
    def names(self) -> tuple[str, ...]:
        """The column's own name."""
        return (self.column,)

    def entries(self, column: Column, first: int = 0, /) -> Entries:
        """Every row has the one feature."""
        return _numbered(super().entries(column, first))


@dataclass(frozen=True)
class PartNumber(DatePart):
    """The month, weekday or hour of a column as a number from 0 on; a missing one is NaN."""

    kind: ClassVar[str] = "part_number"

    @property
    def names(self) -> tuple[str, ...]:
        """Like "joined weekday"."""
        return (f"{self.column} {self.part}",)

    def entries(self, column: Column, first: int = 0, /) -> Entries:
        """Every row has the one feature."""
        return _numbered(super().entries(column, first))


NATIVE = (PlainNumber, PlainDate, CategoryNumber, BucketNumber, PartNumber)
_NATIVE_OF: dict[type[Feature], type[Feature]] = {each.__mro__[1]: each for each in NATIVE}


def native_features(features: Sequence[Feature]) -> tuple[Feature, ...]:
    """The features that trees want in place of these, which were fitted; indicators are left out."""
    kept = (feature for feature in features if feature.kind != "missing_indicator")
    return tuple(_native(feature) for feature in kept)


def is_category(feature: Feature) -> bool:
    """Whether a feature is the number of a category."""
    return isinstance(feature, CategoryNumber | BucketNumber)


def _native(feature: Feature) -> Feature:
    kind = _NATIVE_OF.get(type(feature))
    if kind is None:
        return feature
    return kind(**vars(feature))


def _numbered(entries: Entries) -> Entries:
    """The number of each row's feature as the value of the one feature there is."""
    index, _ = entries
    return np.zeros(len(index), np.int32), np.where(index < 0, np.nan, index).astype(np.float32)
