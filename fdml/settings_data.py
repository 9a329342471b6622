"""Settings of a party's data: `[data]` of its party.toml, and how its ids are written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from fdml.errors import SettingsError
from fdml.settings_file import Settings

Format = Literal["csv", "parquet", "libsvm", "numpy"]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Range = tuple[float, float]
"""The least and the largest number of a column."""


class IdSettings(Settings):
    """How a party spells its ids, so that all parties spell the same id alike, and what becomes of bad ones."""

    trim: bool = True
    """Whether white space around an id is taken off."""
    case: Literal["keep", "lower"] = "keep"
    unicode: Literal["keep", "NFC", "NFKC"] = "NFC"
    numbers: Literal["typed", "all"] = "typed"
    """Which whole numbers are written plainly, as 7: those of number columns, or also text like "007" and "7.0"."""
    duplicates: Literal["error", "first", "drop"] = "error"
    """What becomes of rows with a duplicate id: an error, the first is kept, or none is."""
    missing: Literal["error", "drop"] = "error"
    """What becomes of rows without an id."""


class DataSettings(Settings):
    """Where a party's rows are and what their columns mean."""

    path: Path
    test_path: Path | None = None
    format: Format | None = None
    """None goes by the file's ending."""
    id: Names = ()
    ids: IdSettings = IdSettings()
    label: str | None = None
    weight: str | None = None
    columns: Names | None = None
    """The feature columns; None takes every column that is not id, label, weight or ignored."""
    ignore: Names = ()
    """Columns to leave alone."""
    categorical: Names = ()
    """Columns of numbers that are codes; columns of text are categorical anyway."""
    hashed: Names = ()
    """Categorical columns to hash instead of one-hot."""
    hash_size: PositiveInt = 1024
    missing: Literal["error", "mean", "zero"] = "error"
    """What a missing number becomes; a missing category gives no feature."""
    scale: Literal["standard", "none"] = "standard"
    """Numeric columns of tables: to mean 0 and variance 1, or as they are."""
    ranges: dict[str, Range] = Field(default_factory=dict)
    """Of numeric columns: they are cut to the range and scaled to -1 at its low end and 1 at its high end, whatever the
    rows are."""
    categories: dict[str, Annotated[Names, Field(min_length=1)]] = Field(default_factory=dict)
    """Of categorical columns: these give a feature each, whatever the rows are; others give none."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, (low, high) in self.ranges.items():
            if not 0.0 < high - low < math.inf:
                raise SettingsError(f"data.ranges of column {name!r} is [{low:g}, {high:g}]; give the lower end first")
        for name, categories in self.categories.items():
            if len(set(categories)) < len(categories):
                raise SettingsError(f"data.categories of column {name!r} lists one twice; list each once")
        for name in self.ranges.keys() & {*self.categories, *self.categorical, *self.hashed}:
            raise SettingsError(f"column {name!r} has data.ranges, but is categorical by other settings; choose one")
        for name in self.categories.keys() & {*self.hashed}:
            raise SettingsError(f"column {name!r} is in data.categories and in data.hashed; choose one")
        return self
