"""The others' predictions behind their noise, as a party expects them.

Where exchanges are few, the same noise stays in the score for many passes. A
party first fits the others' predictions to its own features, which averages the
noise over all rows, and then shrinks how much each row departs from that fit
(measured on a9a: test AUC .9023 instead of .9010 at epsilon 5.4, and scores that
need no correction). It uses no labels and releases nothing.

A party whose rows are hidden by noise in its training may not do so: the fit would carry one row's features to the
score of every other. It shrinks the others' predictions towards their mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import DenseRows, PlainRows, Rows, SparseRows, plain_rows, to_scipy

_MOST_FEATURES = 1024
"""Of a wider party those that vary most are used."""
_LEAST = 1e-6

Values = NDArray[np.float64]


class Denoised(NamedTuple):
    """The others' predictions as expected, `(rows, width)`, and the variance of what is left unknown."""

    values: Values
    variance: float


def denoise(others: Values, variance: float, rows: Rows | None) -> Denoised:
    """The expected predictions of the others behind values with noise of this variance.

    With the party's own rows by a fit to them; without (None) each row's depends on what was received alone.
    """
    if variance == 0.0 or len(others) < 2:
        return Denoised(others, variance)
    known = _Features.of(DenseRows(np.zeros((len(others), 0), np.float32)) if rows is None else plain_rows(rows))
    columns = [_denoise_column(others[:, k], variance, known) for k in range(others.shape[1])]
    return Denoised(np.column_stack([each.values for each in columns]), float(np.mean([c.variance for c in columns])))


def probit_scale(variance: float) -> float:
    """MacKay's factor 1 / sqrt(1 + pi v / 8) for a log-odds of variance v: shrinks it to the chance that it means."""
    return 1.0 / math.sqrt(1.0 + math.pi * variance / 8.0)


def _denoise_column(noisy: Values, variance: float, known: _Features) -> Denoised:
    count = len(noisy)
    centre = float(noisy.mean())
    off = noisy - centre
    signal = max(float(np.square(off).mean()) - variance, variance * math.sqrt(2.0 / count))
    fitted, freedom = known.fit(off, variance / signal)
    left = off - fitted
    spread = max(float(np.square(left).sum()) / max(count - freedom, 1.0) - variance, _LEAST)
    share = spread / (spread + variance)
    return Denoised(centre + fitted + share * left, share * variance)


@dataclass(frozen=True)
class _Features:
    """A party's features as ridge regression needs them: once for all columns."""

    values: Any
    """`(rows, features)`, dense or sparse as they are stored."""
    means: Values
    sizes: Values
    """Eigenvalues of the centred features' Gram matrix."""
    directions: Values

    @classmethod
    def of(cls, rows: PlainRows) -> Self:
        """Of these rows; of many features those that vary most."""
        stored: Any = to_scipy(rows) if isinstance(rows, SparseRows) else rows.values
        values = stored.astype(np.float64)
        means = np.asarray(values.mean(axis=0)).ravel()
        if len(means) > _MOST_FEATURES:
            spread = np.asarray((values * values).mean(axis=0)).ravel() - means**2
            chosen = np.sort(np.argsort(spread)[-_MOST_FEATURES:])
            values, means = values[:, chosen], means[chosen]
        gram: Any = values.T @ values
        dense = gram.toarray() if isinstance(rows, SparseRows) else gram
        sizes, directions = np.linalg.eigh(dense - values.shape[0] * np.outer(means, means))
        return cls(values, means, np.maximum(sizes, 0.0), directions)

    def fit(self, off: Values, doubt: float) -> tuple[Values, float]:
        """The part of `off` that the features explain, and the degrees of freedom of the fit."""
        count = len(off)
        if not len(self.means):
            return np.zeros(count), 1.0
        penalty = doubt * max(float(self.sizes.sum()) / count, _LEAST)
        pull = self.directions.T @ (self.values.T @ off - self.means * off.sum())
        weights = self.directions @ (pull / (self.sizes + penalty))
        freedom = float(np.sum(self.sizes / (self.sizes + penalty))) + 1.0
        return self.values @ weights - float(self.means @ weights), freedom
