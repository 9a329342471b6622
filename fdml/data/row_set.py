"""Rows of all parties in one order, with labels and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import Rows, choose, hstack
from fdml.errors import DataError


@dataclass(frozen=True)
class RowSet:
    """Rows that all parties hold, in one order."""

    parts: Mapping[str, Rows]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    """Mean 1."""
    groups: NDArray[np.int64] | None = None
    """The number of each row's group, where rows are ranked within groups; the label party alone has them."""

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: NDArray[np.int64]) -> RowSet:
        """The rows with these numbers, in this order."""
        parts = {name: choose(rows, index) for name, rows in self.parts.items()}
        groups = None if self.groups is None else self.groups[index]
        return RowSet(parts, self.labels[index], self.weights[index], groups)

    def only(self, party: str) -> RowSet:
        """The same rows with one party's features."""
        return replace(self, parts={party: self.parts[party]})

    def pooled(self, name: str) -> RowSet:
        """The same rows with all features at one party."""
        return replace(self, parts={name: hstack(list(self.parts.values()))})


def mean_one(weights: NDArray[np.float64] | None, rows: int) -> NDArray[np.float64]:
    """Row weights scaled to mean 1, so that they do not change the step size; all are 1 if none are given."""
    if weights is None:
        return np.ones(rows)
    total = float(weights.sum())
    if total <= 0.0:
        raise DataError("all row weights are zero; give at least one row a weight")
    return weights * (rows / total)
