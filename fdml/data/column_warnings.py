"""What of a column is probably not meant so: codes read as numbers, ids and free text as features, dates as text.

Only counts and shapes are kept, and no warning quotes a value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fdml.data.column_types import is_number, is_text, missing, numbers, plain
from fdml.data.distinct import DistinctCount

_MOST = 0.9
"""The share of values from which on a column is taken to be of a shape."""
_ENOUGH_ROWS = 100
"""With fewer rows nothing is said of values that all differ."""
_FREE_WORDS = 3.0
"""Words of a value on average, from which on it is free text."""
_MANY_CATEGORIES = 1_000
_FEW_CATEGORIES = 50
"""Up to so many are compared with each other."""
_FEWEST_DIGITS = 3
"""Of whole numbers that may be codes: ages have two."""
_REPEATED = 10
"""Rows for each code, at least."""
_YEARS = (1800, 2100)

SHAPES = {
    "number": r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$",
    "decimal comma": r"^\s*[+-]?\d+(\.\d{3})*,\d+\s*$",
    "percent": r"^\s*[+-]?\d+([.,]\d+)?\s*%\s*$",
    "date": r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([ T].*)?$",
}
"""Shapes of text that a person reads as something else."""


class ColumnLook:
    """One column while its batches pass by."""

    def __init__(self) -> None:
        self.rows = 0
        self.missing = 0
        self.distinct = DistinctCount()
        self._numbers = _NumberLook()
        self._texts = _TextLook()
        self._kind: Any = pa.null()

    def add(self, column: Any) -> None:
        """Look at a batch."""
        values = plain(column)
        gone = missing(values)
        self.rows += len(values)
        self.missing += int(gone.sum())
        self._kind = values.type
        if pa.types.is_nested(values.type):
            return  # it cannot be used, which the fit says
        self.distinct.add(values)
        if is_number(values.type):
            real = numbers(values)
            self._numbers.add(real[np.isfinite(real)])
        elif is_text(values.type):
            self._texts.add(values.filter(pa.array(~gone)))

    @property
    def present(self) -> int:
        """Rows with a value."""
        return self.rows - self.missing

    def warnings(self, *, categorical: bool = False) -> list[str]:
        """What a person should look at, each with the way out; `categorical` where settings say that it is so."""
        if not self.present:
            return ["no row has a value: name it in data.ignore"]
        found = []
        if self.distinct.is_exact and self.distinct.count == 1:
            found.append("the same in every row: nothing can be learned from it")
        if 2 * self.missing >= self.rows:
            found.append(f"missing in {self.missing / self.rows:.0%} of the rows")
        if is_number(self._kind) and not categorical:
            found += self._numbers.warnings(self.present, self.distinct)
        if is_text(self._kind):
            found += self._texts.warnings(self.present, self.distinct, categorical=categorical)
        return found


class _NumberLook:
    def __init__(self) -> None:
        self.is_whole = True
        self.are_dates = True
        self.least, self.most = np.inf, -np.inf

    def add(self, values: NDArray[np.float64]) -> None:
        if not len(values):
            return
        self.is_whole = self.is_whole and bool((values == np.floor(values)).all())
        self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))
        self.are_dates = self.is_whole and self.are_dates and _are_dates(values)

    def warnings(self, rows: int, distinct: DistinctCount) -> list[str]:
        if not self.is_whole:
            return []
        if self.are_dates and distinct.count > 1:
            return ["dates written as numbers like 20261115: write them like 2026-11-15"]
        if rows >= _ENOUGH_ROWS and distinct.count >= 0.99 * rows:
            return ["another whole number in (almost) every row, like an id: name it in data.ignore"]
        digits = {len(f"{abs(bound):.0f}") for bound in (self.least, self.most)}
        is_year = _YEARS[0] <= self.least and self.most <= _YEARS[1]
        repeats = 2 < distinct.count <= rows / _REPEATED
        if repeats and len(digits) == 1 and max(digits) >= _FEWEST_DIGITS and self.least > 0 and not is_year:
            return [
                f"whole numbers of {max(digits)} digits that repeat, taken as a number: if they are codes, name it in "
                "data.categorical"
            ]
        return []


class _TextLook:
    def __init__(self) -> None:
        self.shaped = dict.fromkeys(SHAPES, 0)
        self.words = 0
        self.few: set[str] | None = set()

    def add(self, texts: Any) -> None:
        coded = pc.value_counts(texts.cast(pa.large_string()))
        values, counts = coded.field("values"), coded.field("counts").to_numpy(zero_copy_only=False)
        for name, pattern in SHAPES.items():
            matched = pc.match_substring_regex(values, pattern).to_numpy(zero_copy_only=False)
            self.shaped[name] += int(counts[matched].sum())
        words = pc.count_substring_regex(values, r"\S+").to_numpy(zero_copy_only=False)
        self.words += int((words * counts).sum())
        if self.few is not None:
            self.few.update(values.to_pylist()[: _FEW_CATEGORIES + 1])
            self.few = self.few if len(self.few) <= _FEW_CATEGORIES else None

    def warnings(self, rows: int, distinct: DistinctCount, *, categorical: bool) -> list[str]:
        found = [] if categorical else self._shapes(rows)
        if not found and rows >= _ENOUGH_ROWS and distinct.count >= 0.99 * rows:
            found.append("another text in (almost) every row, like an id or free text: name it in data.ignore")
        elif not found and self.words / rows >= _FREE_WORDS and distinct.count > _FEW_CATEGORIES:
            found.append(
                f"free text of {self.words / rows:.0f} words, {distinct.count:,} different ones: name it in data.ignore"
            )
        elif not found and not categorical and distinct.count > _MANY_CATEGORIES:
            found.append(
                f"{distinct.count:,} categories, a feature each: name it in data.hashed, or in data.ignore if it is "
                "free text or an id"
            )
        return [*found, *self._spellings()]

    def _shapes(self, rows: int) -> list[str]:
        """Of numbers and dates that are text; where all are numbers with a comma or a percent sign it is a fault."""
        shares = {name: count / rows for name, count in self.shaped.items()}
        rest = f"{1 - max(shares.values()):.1%} of its values are none"
        if shares["date"] >= _MOST:
            return ["dates written as text, a category each: write them like 2026-11-15, as dates"]
        if shares["decimal comma"] >= _MOST:
            return [f'numbers with a decimal comma, as text ({rest}): set data.decimal = ",", or convert them']
        if shares["percent"] >= _MOST:
            return [f"numbers with a percent sign, as text ({rest}): write them without it"]
        if shares["number"] >= _MOST:
            return [f"numbers, as text ({rest}, so each is a category): leave the others empty, or convert it"]
        return []

    def _spellings(self) -> list[str]:
        """Of categories that are probably the same."""
        if self.few is None:
            return []
        alike = {each.strip().casefold() for each in self.few}
        if len(alike) < len(self.few):
            return [f"{len(self.few)} categories, {len(alike)} if case and white space are left out: write them alike"]
        short = [each for each in alike if each.isalpha() and len(each) <= 2]
        if any(other != each and other.startswith(each) for each in short for other in alike):
            return [f"{len(self.few)} categories, some the beginning of others: the same in other words?"]
        return []


def _are_dates(values: NDArray[np.float64]) -> bool:
    """Whether all numbers read as year, month and day."""
    if values.min() < 10_000 * _YEARS[0] or values.max() >= 10_000 * (_YEARS[1] + 1):
        return False
    whole = values.astype(np.int64)
    month, day = whole // 100 % 100, whole % 100
    fits = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(fits.all())
