"""Every kind of feature by its name in a JSON text, and the one that any column may have beside its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fdml.data.column_features import Entries, Hashed, Number, NumberInRange, OneHot
from fdml.data.column_types import Column, missing
from fdml.data.date_features import DateInRange, DateNumber, DatePart
from fdml.data.native_features import NATIVE


@dataclass(frozen=True)
class MissingIndicator:
    """Whether a column has no value: 1 where it has none, else 0."""

    kind: ClassVar[str] = "missing_indicator"
    column: str

    @property
    def names(self) -> tuple[str, ...]:
        """Like "income is missing"."""
        return (f"{self.column} is missing",)

    def entries(self, column: Column, _first: int = 0, /) -> Entries:
        """Every row has the one feature."""
        gone = missing(column)
        return np.zeros(len(gone), np.int32), gone.astype(np.float32)


FEATURES: dict[str, type[Any]] = {
    each.kind: each
    for each in (Number, NumberInRange, OneHot, Hashed, DateNumber, DateInRange, DatePart, MissingIndicator, *NATIVE)
}
