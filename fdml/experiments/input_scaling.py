"""Scaling of an estimator's input, as the columns of a file are scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_PIECE_BYTES = 16 * 2**20
"""Of a dense matrix that are in double precision at a time, roughly."""


@dataclass(frozen=True)
class InputScaling:
    """Columns of dense rows to mean 0 and variance 1; a constant one is only centred.

    Columns of sparse rows stay sparse, so they are not centred: their entries are brought to mean square 1. A column of
    zeros and ones stays as it is.
    """

    centre: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def fit(cls, X: Any, weights: NDArray[np.float64]) -> InputScaling:
        """Learn it from rows, each counted with its weight."""
        return _of_sparse(X, weights) if sp.issparse(X) else _of_dense(X, weights)

    @classmethod
    def none(cls, width: int) -> InputScaling:
        """The one that changes nothing."""
        return cls(np.zeros(width), np.ones(width))

    @property
    def changes_nothing(self) -> bool:
        """Whether rows stay as they are."""
        return not self.centre.any() and bool((self.spread == 1.0).all())

    def apply(self, X: Any) -> Any:
        """The rows, scaled, in single precision. Sparse rows become dense only where dense ones were learned from."""
        if self.changes_nothing:
            return X
        if not sp.issparse(X):
            return self._dense(np.asarray(X))
        sparse: Any = X
        if self.centre.any():
            return self._dense(sparse.toarray())
        scaled = sparse.tocsr().astype(np.float64)
        scaled.data /= self.spread[scaled.indices]
        return scaled.astype(np.float32)

    def _dense(self, X: NDArray[Any]) -> NDArray[np.float32]:
        out = np.empty(X.shape, np.float32)
        step = max(_PIECE_BYTES // (8 * max(X.shape[1], 1)), 1)
        for start in range(0, len(X), step):
            piece = slice(start, start + step)
            out[piece] = (X[piece] - self.centre) / self.spread
        return out


def _of_dense(X: NDArray[Any], weights: NDArray[np.float64]) -> InputScaling:
    counted = X[weights > 0] if not weights.all() else X
    share = weights[weights > 0] / weights.sum()
    least, most = counted.min(axis=0), counted.max(axis=0)
    centre = share @ counted.astype(np.float64, copy=False)
    variance = np.zeros(X.shape[1])
    step = max(_PIECE_BYTES // (8 * max(X.shape[1], 1)), 1)
    for start in range(0, len(counted), step):
        piece = slice(start, start + step)
        variance += share[piece] @ np.square(counted[piece] - centre)
    constant = least == most
    spread = np.where(constant, 1.0, np.sqrt(variance))
    return InputScaling(np.where(constant, least, centre), np.where(spread > 0.0, spread, 1.0))


def _of_sparse(X: Any, weights: NDArray[np.float64]) -> InputScaling:
    rows = X.tocsr()
    owners = np.repeat(weights, np.diff(rows.indptr)) * (rows.data != 0)
    width = rows.shape[1]
    squares = np.bincount(rows.indices, owners * np.square(rows.data, dtype=np.float64), width)
    counts = np.bincount(rows.indices, owners, width)
    spread = np.sqrt(np.divide(squares, counts, out=np.ones(width), where=counts > 0))
    return InputScaling(np.zeros(width), np.where(spread > 0.0, spread, 1.0))
