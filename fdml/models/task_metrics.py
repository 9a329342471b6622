"""All that is said of a score besides its loss: what a bank, a doctor or a shop asks of a model, by task.

Every figure is weighted by the rows' weights. One that is not defined for these rows (an AUC where all have the same
label) is None, and ends no run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fdml.data.row_set import RowSet
from fdml.models.losses import Floats, Logistic, Softmax, loss_named
from fdml.models.metrics import Ranking, explained, regression_loss
from fdml.models.ranking.order import ranking_figures
from fdml.monitor.history import metric_of
from fdml.settings.choices import PAIRWISE, LossName, Task

Figures = Mapping[str, float | None]
"""By name, in the order in which people should see them; the first is the task's own metric."""
_TOP = 0.1
"""The share of rows whose lift is told."""
_BINS = 10
"""Of equal width, in which probabilities are compared with what came true."""
_MOST_RANKED = 1_000_000
"""Rows times classes that are ranked class by class; others would wait for more."""


def task_metrics(
    task: Task, loss: LossName, score: Floats, sample: RowSet, *, threshold: float = 0.5, unit: float = 1.0
) -> dict[str, float | None]:
    """The figures of a task. `unit` is what a target of 1 means in the labels' own units."""
    if loss == PAIRWISE:
        return ranking_figures(score, sample)
    match task:
        case "binary":
            return _binary(loss, score, sample, threshold)
        case "multiclass":
            return _multiclass(loss, score, sample)
        case "regression":
            return _regression(loss, score, sample, unit)


def _binary(loss: LossName, score: Floats, sample: RowSet, threshold: float) -> dict[str, float | None]:
    labels, weights = sample.labels, sample.weights
    ranking = Ranking.of(labels, score[:, 0], weights)
    figures = {
        "auc": ranking.auc,
        "average_precision": ranking.average_precision,
        "ks": ranking.ks,
        "lift": ranking.lift(_TOP),
    }
    link = loss_named(loss)
    if not isinstance(link, Logistic):
        return {**figures, "accuracy": _mean((score[:, 0] > 0) == (labels > 0), weights)}
    chance = link.chance(score)
    return {
        **figures,
        "brier": _mean(np.square(chance - labels), weights),
        "calibration_error": calibration_error(labels, chance, weights),
        "log_loss": _mean(link.value(score, labels), weights),
        "accuracy": _mean((chance >= threshold) == (labels > 0), weights),
        "threshold": threshold,
    }


def _multiclass(loss: LossName, score: Floats, sample: RowSet) -> dict[str, float | None]:
    labels, weights = sample.labels.astype(np.int64), sample.weights
    chosen = score.argmax(axis=1)
    link = loss_named(loss)
    return {
        "accuracy": _mean(chosen == labels, weights),
        "macro_f1": macro_f1(labels, chosen, weights),
        "macro_auc": macro_auc(labels, link.probability(score), weights) if isinstance(link, Softmax) else None,
        "log_loss": _mean(link.value(score, sample.labels), weights),
    }


def _regression(loss: LossName, score: Floats, sample: RowSet, unit: float) -> dict[str, float | None]:
    labels, weights = sample.labels, sample.weights
    return {
        metric_of("regression", loss): float(explained(loss, labels, score, weights)),
        **regression_loss(loss_named(loss)).figures(score, labels, weights, unit),
    }


def calibration_error(labels: Floats, chance: Floats, weights: Floats) -> float:
    """Mean distance of probability and frequency over bins of equal width, weighted by their rows."""
    bins = np.minimum((chance * _BINS).astype(np.int64), _BINS - 1)
    gap = np.bincount(bins, weights * (chance - labels), _BINS)
    return float(np.abs(gap).sum() / weights.sum())


def macro_f1(labels: NDArray[np.int64], chosen: NDArray[np.int64], weights: Floats) -> float:
    """The mean over all classes that occur of F1, the harmonic mean of precision and recall."""
    size = int(max(labels.max(), chosen.max())) + 1
    true = np.bincount(labels, weights, size)
    told = np.bincount(chosen, weights, size)
    right = np.bincount(labels[labels == chosen], weights[labels == chosen], size)
    present = np.isin(np.arange(size), labels) | np.isin(np.arange(size), chosen)
    both = np.where(true + told > 0.0, true + told, 1.0)
    return float(np.mean((2.0 * right / both)[present]))


def macro_auc(labels: NDArray[np.int64], chances: Floats, weights: Floats) -> float | None:
    """The mean of each class's AUC against the rest; None where a class does not occur or there is too much to rank."""
    if chances.size > _MOST_RANKED:
        return None
    each = [
        Ranking.of((labels == number).astype(np.float64), chances[:, number], weights).auc
        for number in range(chances.shape[1])
    ]
    defined = [figure for figure in each if figure is not None]
    return float(np.mean(defined)) if len(defined) == len(each) else None


def _mean(values: NDArray[np.generic], weights: Floats) -> float:
    return float(np.average(values.astype(np.float64), weights=weights))
