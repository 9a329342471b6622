"""How sure a difference of two scores is: both are measured on the same resamples of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fdml.data.row_set import RowSet
from fdml.models.losses import Floats
from fdml.models.metrics import SortedRows, explained
from fdml.models.ranking.order import order_in_groups
from fdml.monitor.history import Gain
from fdml.settings.choices import PAIRWISE, LossName, Task

RESAMPLES = 500
_LITTLE = 10_000
"""Rows that are measured at once: of more rows, random parts of so many stand for all."""
_PARTS = 10
_SHARE = 0.95
"""Of the resamples, whose differences lie in the interval."""

_AT_ONCE = 2**14
"""Weights that are measured in one call: of few rows many resamples, as each call costs more than they do."""

Measure = Callable[[Floats], Floats]
"""The task's metric under each of several weightings of the rows, `(weightings, rows)`; NaN where it is not defined."""


def paired_difference(
    task: Task, score: Floats, other: Floats, sample: RowSet, *, seed: int, loss: LossName | None = None
) -> Gain:
    """The metric of `score` less that of `other`, and its percentile interval over resampled rows (Efron 1979).

    A resample draws as many rows as there are, with replacement: counts of rows, so nothing is sorted again. Of many
    rows each is drawn from a small random part, as often as there are rows in all (Kleiner and others 2014). Where most
    resamples have no metric there is no interval.
    """
    if loss == PAIRWISE:
        (score, other), sample = _by_group([score, other], sample)
    measure = partial(_measure, task, loss)
    value = _differences(measure(score, sample), measure(other, sample), sample.weights[None])[0]
    if np.isnan(value):
        return Gain(None, None, None)
    rows, random = len(sample), np.random.default_rng([seed, len(sample)])
    parts = [np.arange(rows)] if rows <= _LITTLE else [random.permutation(rows)[:_LITTLE] for _ in range(_PARTS)]
    found: list[float] = []
    for part in parts:
        little = sample.take(part)
        first, second = measure(score[part], little), measure(other[part], little)
        middle = _differences(first, second, little.weights[None])[0]
        for counts in _counts(random, rows, len(part), RESAMPLES // len(parts)):
            deviations = _differences(first, second, little.weights * counts) - middle
            found += deviations[~np.isnan(deviations)].tolist()
    if 2 * len(found) < RESAMPLES:
        return Gain(float(value), None, None)
    low, high = np.quantile(found, [(1.0 - _SHARE) / 2.0, (1.0 + _SHARE) / 2.0]).tolist()
    return Gain(float(value), float(value) + low, float(value) + high)


def resampled(
    task: Task, scores: Sequence[Floats], sample: RowSet, *, seed: int, loss: LossName | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The metric of each of several scores of the same rows, and by how much it differs in each resample.

    The deviations are `(resamples, scores)`, of those resamples in which every score has a metric; none where these
    are few. Of many rows small random parts are resampled, as for a paired difference.
    """
    if loss == PAIRWISE:
        scores, sample = _by_group(scores, sample)
    values = np.array([_measure(task, loss, score, sample)(sample.weights[None])[0] for score in scores])
    rows, random = len(sample), np.random.default_rng([seed, len(sample)])
    parts = [np.arange(rows)] if rows <= _LITTLE else [random.permutation(rows)[:_LITTLE] for _ in range(_PARTS)]
    found: list[NDArray[np.float64]] = []
    for part in parts:
        little = sample.take(part)
        measures = [_measure(task, loss, score[part], little) for score in scores]
        middle = np.array([measure(little.weights[None])[0] for measure in measures])
        for counts in _counts(random, rows, len(part), RESAMPLES // len(parts)):
            weights = little.weights * counts
            weights = weights[weights.any(axis=1)]
            found.append(np.column_stack([measure(weights) for measure in measures]).astype(np.float64) - middle)
    deviations = np.concatenate(found) if found else np.zeros((0, len(scores)))
    deviations = deviations[np.isfinite(deviations).all(axis=1)]
    return values, deviations if 2 * len(deviations) >= RESAMPLES else deviations[:0]


def _counts(random: np.random.Generator, draws: int, rows: int, resamples: int) -> Iterator[NDArray[np.int64]]:
    """How often each row is drawn in so many draws, `(some resamples, rows)`, until there are so many resamples."""
    some = max(1, _AT_ONCE // rows)
    for begin in range(0, resamples, some):
        size = min(some, resamples - begin)
        if draws > rows:
            yield random.multinomial(draws, np.full(rows, 1.0 / rows), size=size)
        else:
            places = random.integers(rows, size=(size, draws)) + rows * np.arange(size)[:, None]
            yield np.bincount(places.reshape(-1), minlength=size * rows).reshape(size, rows)


def _differences(first: Measure, second: Measure, weights: Floats) -> Floats:
    """By how much the first exceeds the second under each weighting; NaN where either is not defined."""
    found = np.full(len(weights), np.nan)
    some = weights.any(axis=1)
    if some.any():
        found[some] = first(weights[some]) - second(weights[some])
    return np.where(np.isfinite(found), found, np.nan)


def _by_group(scores: Sequence[Floats], sample: RowSet) -> tuple[list[Floats], RowSet]:
    """The figure of each group by each score, in place of rows: groups are resampled whole."""
    figures: list[Floats] = [order_in_groups(score, sample).auc[:, None] for score in scores]
    count = len(figures[0])
    return figures, RowSet({}, np.zeros(count), np.ones(count))


def _measure(task: Task, loss: LossName | None, score: Floats, sample: RowSet) -> Measure:
    if loss == PAIRWISE:
        return lambda weights: np.vecdot(weights, score[:, 0]) / weights.sum(axis=1)
    match task:
        case "binary":
            rows = SortedRows.of(sample.labels, score[:, 0])
            return lambda weights: rows.ranking(weights).aucs
        case "multiclass":
            right = (score.argmax(axis=1) == sample.labels).astype(np.float64)
            return lambda weights: np.vecdot(weights, right) / weights.sum(axis=1)
        case "regression":
            return lambda weights: explained(loss, sample.labels, score, weights)
