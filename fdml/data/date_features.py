"""Features of dates and times: a number that grows with time, and the parts that come again.

A date gives the days since 1970, the month and the weekday. A timestamp gives the same in UTC, days with a fraction,
and the hour. A time of day gives the hours since midnight and the hour. A duration gives days. Months, weekdays and
hours are categories that are known beforehand, one feature each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pydantic import PositiveFloat

from fdml.data.column_features import Entries, Number, NumberInRange
from fdml.data.column_types import Column, is_temporal
from fdml.errors import DataError

Unit = Literal["days", "hours"]
DatePartName = Literal["month", "weekday", "hour"]
PARTS: dict[DatePartName, tuple[str, ...]] = {
    "month": tuple(map(str, range(1, 13))),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "hour": tuple(map(str, range(24))),
}
"""The categories of each part, in the order of their features."""
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Of a second."""


@dataclass(frozen=True)
class DateNumber:
    """A column of dates or times as a number, `(value - mean) / deviation`."""

    kind: ClassVar[str] = "date_number"
    column: str
    unit: Unit
    fill: float | None
    """What a missing one becomes, before scaling; None refuses it."""
    mean: float = 0.0
    deviation: PositiveFloat = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """Like "joined days"."""
        return (f"{self.column} {self.unit}",)

    def entries(self, column: Column, first: int = 0, /) -> Entries:
        """Every row has the one feature."""
        number = Number(self.column, self.fill, self.mean, self.deviation)
        return number.entries(since(self.column, column), first)


@dataclass(frozen=True)
class DateInRange:
    """A column of dates or times whose range is known beforehand: -1 at its low end, 1 at its high end, cut beyond."""

    kind: ClassVar[str] = "date_in_range"
    column: str
    unit: Unit
    fill: float | None
    """What a missing one becomes, before scaling; None refuses it."""
    low: float
    high: float

    @property
    def names(self) -> tuple[str, ...]:
        """Like "joined days"."""
        return (f"{self.column} {self.unit}",)

    def entries(self, column: Column, first: int = 0, /) -> Entries:
        """Every row has the one feature."""
        return NumberInRange(self.column, self.fill, self.low, self.high).entries(since(self.column, column), first)


@dataclass(frozen=True)
class DatePart:
    """The month, weekday or hour of a column, one feature for each there is."""

    kind: ClassVar[str] = "date_part"
    column: str
    part: DatePartName

    @property
    def names(self) -> tuple[str, ...]:
        """Like "joined weekday=Monday"."""
        return tuple(f"{self.column} {self.part}={each}" for each in PARTS[self.part])

    def entries(self, column: Column, _first: int = 0, /) -> Entries:
        """A missing date gives no feature."""
        refuse_other_types(self.column, column.type)
        numbers = _number_of(self.part, in_utc(column))
        index: Any = pc.fill_null(numbers, -1).to_numpy(zero_copy_only=False)
        return index.astype(np.int32), np.ones(len(index), np.float32)


def unit_of(kind: Any) -> Unit:
    """What a column of this type is counted in."""
    return "hours" if pat.is_time(kind) else "days"


def parts_of(kind: Any) -> tuple[DatePartName, ...]:
    """The parts that come again in a column of this type."""
    if pat.is_duration(kind):
        return ()
    if pat.is_time(kind):
        return ("hour",)
    return ("month", "weekday", "hour") if pat.is_timestamp(kind) else ("month", "weekday")


def since(name: str, column: Column) -> Any:
    """Days since 1970 or hours since midnight as float64; missing where the date is."""
    kind = column.type
    if pat.is_null(kind):
        return column.cast(pa.float64())
    refuse_other_types(name, kind)
    if pat.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.float64())
    counts = column.cast(pa.int32() if pat.is_time32(kind) else pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(counts, float(_TICKS[kind.unit] * (3_600 if pat.is_time(kind) else 86_400)))


def in_utc(column: Column) -> Any:
    """Timestamps as UTC shows them, whatever their time zone."""
    kind = column.type
    return column.cast(pa.timestamp(kind.unit)) if pat.is_timestamp(kind) and kind.tz is not None else column


def refuse_other_types(name: str, kind: Any) -> None:
    """Raise unless a column holds dates or times."""
    if not (is_temporal(kind) or pat.is_null(kind)):
        raise DataError(
            f"column {name!r} held dates in training but holds {kind} here; write them like 2026-11-15, or name the "
            f"column in data.ignore"
        )


def _number_of(part: DatePartName, column: Any) -> Any:
    if pat.is_null(column.type):
        return column.cast(pa.int64())
    if part == "month":
        return pc.subtract(pc.month(column), 1)
    return pc.day_of_week(column) if part == "weekday" else pc.hour(column)
