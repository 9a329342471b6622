"""How well probabilities came true, and how well rows are ranked: what a reliability diagram and a lift curve show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fdml.data.row_set import RowSet
from fdml.events import Reliability
from fdml.models.losses import Floats, Logistic, loss_named
from fdml.models.metrics import Ranking
from fdml.settings.choices import LossName

BINS = 10
"""Of equal width, as those of the calibration error."""


def reliability_of(party: str, epoch: int, loss: LossName, score: Floats, sample: RowSet) -> Reliability | None:
    """Of scores of a binary task; None where they are no probabilities, or all rows have the same label."""
    link, labels, weights = loss_named(loss), sample.labels, sample.weights
    if not np.isfinite(score).all():
        return None
    ranking = Ranking.of(labels, score[:, 0], weights)
    lift = tuple(ranking.lift((number + 1) / BINS) for number in range(BINS))
    if not isinstance(link, Logistic) or any(each is None for each in lift):
        return None
    chance = link.probability(score)[:, 1]
    bins = np.minimum((chance * BINS).astype(np.int64), BINS - 1)
    rows, predicted, observed = (_sums(bins, each) for each in (weights, weights * chance, weights * labels))
    return Reliability(
        party,
        epoch,
        tuple(map(float, rows)),
        _means(predicted, rows),
        _means(observed, rows),
        tuple(each for each in lift if each is not None),
    )


def _sums(bins: NDArray[np.int64], values: Floats) -> Floats:
    return np.bincount(bins, values, BINS).astype(np.float64)


def _means(sums: Floats, rows: Floats) -> tuple[float | None, ...]:
    return tuple(float(each / count) if count > 0.0 else None for each, count in zip(sums, rows, strict=True))
