"""Tables in memory: a party's ids, features, labels and weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import NO_NATIVE, NativeFeatures, Rows, choose, row_count, width
from fdml.errors import DataError


@dataclass(frozen=True)
class Table:
    """One party's rows.

    `ids`, `labels` and `weights` have one entry per row. Ids are normalised (`fdml.data.ids`); without ids, the rows of
    all parties are matched by position. Labels are those of the file: `label_encoding` makes numbers of them.
    """

    rows: Rows
    names: tuple[str, ...]
    ids: NDArray[np.object_] | None = None
    labels: NDArray[np.generic] | None = None
    weights: NDArray[np.float64] | None = None
    native: NativeFeatures = NO_NATIVE
    """Which features are as trees want them."""

    def __post_init__(self) -> None:
        """Raise unless all parts are of one length."""
        if len(self.names) != width(self.rows):
            raise DataError(f"{len(self.names)} feature names for {width(self.rows)} features")
        for what in ("ids", "labels", "weights"):
            column = getattr(self, what)
            if column is not None and len(column) != len(self):
                raise DataError(f"{len(column)} {what} for {len(self)} rows")

    def __len__(self) -> int:
        """The number of rows."""
        return row_count(self.rows)

    def take(self, index: NDArray[np.int64]) -> Table:
        """The rows with these numbers, in this order."""
        return Table(
            choose(self.rows, index),
            self.names,
            None if self.ids is None else self.ids[index],
            None if self.labels is None else self.labels[index],
            None if self.weights is None else self.weights[index],
            self.native,
        )


@dataclass(frozen=True)
class PartyData:
    """One party's data for a run; `test` is None if it has no test file."""

    train: Table
    test: Table | None = None
