"""Features of a file without named columns: taken by number, missing ones filled as in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from fdml.data.documents import checked, read_document, write_document
from fdml.data.imputation import Features, impute, with_indicators
from fdml.data.rows import Rows, as_rows
from fdml.errors import DataError

LAYOUT = 1
"""Of the JSON text."""


@dataclass(frozen=True, eq=False)
class MatrixEncoder:
    """A matrix of training, fitted: its width, and what a missing number becomes."""

    width: int
    fills: NDArray[np.float32] | None
    """One per feature; None refuses a missing number."""
    first_number: int = 1
    """The number of the first feature in a LIBSVM file: 1, or 0 where training had a feature 0."""
    indicated: tuple[int, ...] = ()
    """The features, counted from 0, beside which another one says where they are missing; those come last."""

    @property
    def names(self) -> tuple[str, ...]:
        """The features' places, counted from 1, and then like "3 is missing"."""
        own = tuple(str(number) for number in range(1, self.width + 1))
        return (*own, *(f"{feature + 1} is missing" for feature in self.indicated))

    def encode(self, features: Features, first: int = 0) -> Rows:
        """Rows of a float32 matrix of this width, dense or CSR; `first` is the number of its first row in the file."""
        if self.fills is None or not self.indicated:
            return as_rows(impute(features, self.fills, first))
        fills = np.concatenate([self.fills, np.zeros(len(self.indicated), np.float32)])
        return as_rows(impute(with_indicators(features, self.indicated), fills, first))

    def to_json(self) -> str:
        """All of it as JSON; `from_json` gives an encoder that makes the same bits."""
        values = {
            "layout": LAYOUT,
            "encoder": "matrix",
            "width": self.width,
            "fills": None if self.fills is None else self.fills.tolist(),
            "first_number": self.first_number,
        }
        return write_document({**values, "indicated": self.indicated} if self.indicated else values)

    @classmethod
    def from_json(cls, text: str | bytes) -> MatrixEncoder:
        """What `to_json` wrote."""
        found = checked(_Stored, read_document(text, "the encoder", LAYOUT), "the encoder")
        if found.fills is not None and len(found.fills) != found.width:
            raise DataError(f"the encoder has {len(found.fills)} fills for {found.width} features; it is damaged")
        if any(feature >= found.width for feature in found.indicated) or (found.indicated and found.fills is None):
            raise DataError(f"the encoder indicates features that it has not among {found.width}; it is damaged")
        fills = None if found.fills is None else np.array(found.fills, np.float32)
        return cls(found.width, fills, found.first_number, found.indicated)


@dataclass(frozen=True)
class _Stored:
    """The JSON text's keys."""

    encoder: Literal["matrix"]
    width: NonNegativeInt
    fills: tuple[float, ...] | None
    first_number: Annotated[int, Field(ge=0, le=1)]
    indicated: tuple[NonNegativeInt, ...] = ()
