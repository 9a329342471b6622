"""Models over rows that point to stored ones: the stored rows are gathered a bounded number at a time.

A row that the party does not hold has a prediction of exactly zero, whatever the model says of a row without features,
and weight zero in every update.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import PlainRows, PointedRows, Rows, has_unit_values, take
from fdml.models import signals
from fdml.models.losses import Floats
from fdml.models.model import Model
from fdml.models.signals import BlockUpdate, Scores


def predict_rows(model: Model, rows: Rows, start: int, stop: int) -> Floats:
    """Local predictions of the rows from `start` to `stop`, `(rows, width)`."""
    if not isinstance(rows, PointedRows):
        return model.predict(rows, start, stop)
    size = signals.GATHERED
    parts = [_predict_part(model, rows, first, min(first + size, stop)) for first in range(start, stop, size)]
    return np.concatenate(parts) if parts else model.predict(rows.stored, 0, 0)


def _predict_part(model: Model, rows: PointedRows, start: int, stop: int) -> Floats:
    predictions = model.predict(_gathered(rows, np.arange(start, stop)))
    predictions[rows.pointers[start:stop] < 0] = 0.0
    return predictions


def learn_rows(model: Model, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
    """One pass over one block; a batch learns from the same rows in the same order, wherever they are stored.

    The model is asked once for each run of batches: not for one that learns from all rows at once, which
    `CollectingLearner` asks itself.
    """
    if not isinstance(rows, PointedRows):
        model.learn(rows, block, scores)
        return
    if not len(block.rates):
        model.learn(rows.stored, block, scores)
    for batches in block.parts():
        order = batches.order
        absent = rows.pointers[block.start + order] < 0
        part = scores._replace(
            total=scores.total[order],
            own_at_push=scores.own_at_push[order],
            labels=scores.labels[order],
            weights=np.where(absent, 0.0, scores.weights[order]),
        )
        learned = batches._replace(start=0, order=np.arange(len(order)))
        model.learn(_gathered(rows, block.start + order), learned, part)


def _gathered(rows: PointedRows, index: NDArray[np.int64]) -> PlainRows:
    found = take(rows, index)
    if not has_unit_values(rows):
        return found
    most = max(len(found.values), 1)  # an empty array would not be known for a single 1
    return found._replace(values=np.broadcast_to(np.float32(1.0), most))
