"""How sure a difference of two scores is: both are measured on the same resamples of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from fdml.data.row_set import RowSet
from fdml.models.losses import Floats
from fdml.models.metrics import SortedRows, r2
from fdml.monitor.history import Gain
from fdml.settings_choices import Task

RESAMPLES = 500
_LITTLE = 10_000
"""Rows that are measured at once: of more rows, random parts of so many stand for all."""
_PARTS = 10
_SHARE = 0.95
"""Of the resamples, whose differences lie in the interval."""

Measure = Callable[[Floats], float | None]
"""The task's metric under other weights of the rows; None where it is not defined."""


def paired_difference(task: Task, score: Floats, other: Floats, sample: RowSet, *, seed: int) -> Gain:
    """The metric of `score` less that of `other`, and its percentile interval over resampled rows (Efron 1979).

    A resample draws as many rows as there are, with replacement: counts of rows, so nothing is sorted again. Of many
    rows each is drawn from a small random part, as often as there are rows in all (Kleiner and others 2014). Where most
    resamples have no metric there is no interval.
    """
    value = _difference(_measure(task, score, sample), _measure(task, other, sample), sample.weights)
    if value is None:
        return Gain(None, None, None)
    rows, random = len(sample), np.random.default_rng([seed, len(sample)])
    parts = [np.arange(rows)] if rows <= _LITTLE else [random.permutation(rows)[:_LITTLE] for _ in range(_PARTS)]
    found: list[float] = []
    for part in parts:
        little = sample.take(part)
        found += _deviations(
            _measure(task, score[part], little),
            _measure(task, other[part], little),
            little.weights,
            (_counts(random, rows, len(part)) for _ in range(RESAMPLES // len(parts))),
        )
    if 2 * len(found) < RESAMPLES:
        return Gain(value, None, None)
    low, high = np.quantile(found, [(1.0 - _SHARE) / 2.0, (1.0 + _SHARE) / 2.0]).tolist()
    return Gain(value, value + low, value + high)


def _counts(random: np.random.Generator, draws: int, rows: int) -> NDArray[np.int64]:
    """How often each row is drawn in so many draws."""
    if draws > rows:
        return random.multinomial(draws, np.full(rows, 1.0 / rows))
    return np.bincount(random.integers(rows, size=draws), minlength=rows)


def _deviations(first: Measure, second: Measure, weights: Floats, counts: Iterable[NDArray[np.int64]]) -> list[float]:
    """By how much the difference of each resample is off that of the rows themselves, where both are defined."""
    middle = _difference(first, second, weights)
    if middle is None:
        return []
    differences = [_difference(first, second, weights * each) for each in counts]
    return [each - middle for each in differences if each is not None]


def _difference(first: Measure, second: Measure, weights: Floats) -> float | None:
    if not weights.any():
        return None
    one, two = first(weights), second(weights)
    return None if one is None or two is None or not np.isfinite(one - two) else one - two


def _measure(task: Task, score: Floats, sample: RowSet) -> Measure:
    match task:
        case "binary":
            rows = SortedRows.of(sample.labels, score[:, 0])
            return lambda weights: rows.ranking(weights).auc
        case "multiclass":
            right = (score.argmax(axis=1) == sample.labels).astype(np.float64)
            return lambda weights: float(weights @ right / weights.sum())
        case "regression":
            return lambda weights: r2(sample.labels, score[:, 0], weights)
