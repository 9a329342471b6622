"""How good a score is: loss, and the measure that fits the task."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fdml.data.row_set import RowSet
from fdml.errors import LabelError
from fdml.models.losses import LOSSES, Floats
from fdml.settings import LossName, Task


def mean_loss(loss: LossName, score: Floats, sample: RowSet) -> float:
    """The weighted mean loss of the rows."""
    return float(np.average(LOSSES[loss].value(score, sample.labels), weights=sample.weights))


def metric(task: Task, score: Floats, sample: RowSet) -> float:
    """AUC, accuracy or R2, by task."""
    labels, weights = sample.labels, sample.weights
    match task:
        case "binary":
            if len(np.unique(labels)) < 2:
                raise LabelError("all test rows have the same label, so there is no AUC; hold out more rows")
            return auc(labels, score[:, 0], weights)
        case "multiclass":
            return float(np.average(score.argmax(axis=1) == labels, weights=weights))
        case "regression":
            return r2(labels, score[:, 0], weights)


def auc(labels: Floats, score: Floats, weights: Floats) -> float:
    """The chance that a positive row scores higher than a negative one; a tie counts half.

    Scikit-learn's own takes 5 ms for 2,500 rows, and the other parties would wait for it; this takes .2 ms.
    """
    order = np.argsort(score)
    positive = np.where(labels[order] > 0, weights[order], 0.0)
    negative = weights[order] - positive
    ends = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))
    below, above = _sums(negative, ends), _sums(positive, ends)
    lower = np.cumsum(below) - 0.5 * below
    return float(above @ lower / (above.sum() * below.sum()))


def r2(targets: Floats, score: Floats, weights: Floats) -> float:
    """The share of the targets' variance that the score explains; 0 if they are all the same and it is not perfect."""
    left = float(weights @ np.square(targets - score))
    variance = float(weights @ np.square(targets - np.average(targets, weights=weights)))
    return 1.0 - left / variance if variance else float(left == 0.0)


def _sums(values: Floats, ends: NDArray[np.int64]) -> Floats:
    """The sum of each run of values that ends at one of these places."""
    return np.add.reduceat(values, np.concatenate([[0], ends[:-1] + 1]))
