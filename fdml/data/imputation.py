"""Imputation of missing numbers in matrices: refused, or filled with the means of training or with zeros.

With "indicator" they are zero, as features of matrices are not scaled, and every feature that has missing numbers in
training gets another one beside it that is 1 where it is missing.
In a sparse matrix only a stored NaN is missing; an entry that is not stored is zero and counts as zero in the mean.
Errors count data rows and features from 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fdml.errors import DataError
from fdml.settings.data import Missing

Features = Any
"""A float32 numpy matrix or scipy `csr_array`."""


def fit_imputation(pieces: Iterable[Features], width: int, rule: Missing) -> NDArray[np.float32] | None:
    """The fill of each feature; None if a missing number is an error. Only "mean" reads the pieces."""
    if rule == "error":
        return None
    sums, counts = np.zeros(width), np.zeros(width)
    for train in pieces if rule == "mean" else ():
        gone = np.isnan(_stored(train))
        if isinstance(train, np.ndarray):
            sums += train.sum(axis=0, dtype=np.float64, where=~gone)
            counts += train.shape[0] - gone.sum(axis=0)
        else:
            sums += np.bincount(train.indices[~gone], train.data[~gone], width)
            counts += train.shape[0] - np.bincount(train.indices[gone], minlength=width)
    means: NDArray[np.float32] = (sums / np.maximum(counts, 1)).astype(np.float32)
    return means


def fit_indicators(pieces: Iterable[Features], rule: Missing) -> tuple[int, ...]:
    """The features, counted from 0, that have missing numbers; only "indicator" reads the pieces."""
    found: set[int] = set()
    for train in pieces if rule == "indicator" else ():
        gone = np.isnan(_stored(train))
        if gone.any():
            found.update(_features(train, gone).tolist())
    return tuple(sorted(found))


def with_indicators(features: Features, indicated: tuple[int, ...]) -> Features:
    """The features, and after them one for each indicated feature: 1 where that is missing."""
    if not indicated:
        return features
    if isinstance(features, np.ndarray):
        return np.hstack([features, np.isnan(features[:, list(indicated)]).astype(np.float32)])
    gone = sp.csr_array((np.isnan(features.data).astype(np.float32), features.indices, features.indptr), features.shape)
    chosen = gone[:, list(indicated)]
    chosen.eliminate_zeros()
    return sp.csr_array(sp.hstack([features, chosen], format="csr"))


def impute(features: Features, fills: NDArray[np.float32] | None, first: int = 0) -> Features:
    """The features with missing numbers filled; without fills, an error that names the first one.

    `first` is the number of the first row in its file.
    """
    values = _stored(features)
    infinite = np.isinf(values)
    if infinite.any():
        where = _first(features, infinite, first)
        raise DataError(f"{where} is infinite or too large for float32; correct or leave it out")
    gone = np.isnan(values)
    if not gone.any():
        return features
    if fills is None:
        raise DataError(
            f"{_first(features, gone, first)} is NaN ({int(gone.sum())} such values); "
            f'set data.missing = "indicator", "mean" or "zero"'
        )
    if isinstance(features, np.ndarray):
        return np.where(gone, fills, features)
    filled = np.where(gone, fills[features.indices], values)
    return sp.csr_array((filled, features.indices, features.indptr), shape=features.shape)


def _stored(features: Features) -> NDArray[np.float32]:
    values: NDArray[np.float32] = features if isinstance(features, np.ndarray) else features.data
    return values


def _features(features: Features, bad: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The features that have a bad value."""
    if isinstance(features, np.ndarray):
        return np.flatnonzero(bad.any(axis=0))
    return np.unique(features.indices[bad])


def _first(features: Features, bad: NDArray[np.bool_], first: int) -> str:
    """The feature and data row of the first bad value, for an error."""
    at = int(np.argmax(bad))
    if isinstance(features, np.ndarray):
        row, column = divmod(at, bad.shape[1])
    else:
        row, column = int(np.searchsorted(features.indptr, at, side="right")) - 1, int(features.indices[at])
    return f"feature {column + 1} of data row {first + row + 1}"
