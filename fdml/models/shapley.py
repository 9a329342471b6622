"""Which party brings what: exact Shapley shares of a joint score's metric, and what is lost without each party.

A coalition is worth the task's metric of its parties' sum, read by a scale and an offset of its own where the metric
needs them. Nobody is worth what the best constant is. A party's share is its mean gain over all orders in which the
parties could join (Shapley 1953), so shares add up to the whole gain. Intervals are percentiles over resampled rows:
every coalition is measured on the same resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np
from numpy.typing import NDArray

from fdml.data.row_set import RowSet
from fdml.errors import DataError, SettingsError
from fdml.models.bootstrap import resampled
from fdml.models.calibration import calibrate
from fdml.models.losses import Floats, loss_named
from fdml.models.metrics import regression_loss
from fdml.monitor.history import Gain
from fdml.settings.choices import LossName, Task

MOST_PARTIES = 12
"""Of whom all coalitions are measured: 2**12 sums."""
Coalition = frozenset[str]
ScoreOf = Callable[[Coalition], Floats]
"""The scores of the rows, `(rows, scores)`, that these parties' parts make together."""


@dataclass(frozen=True)
class PartyShares:
    """What was found of every party."""

    worth: Gain
    """The metric of all parties together."""
    nothing: float
    """The metric of the best constant."""
    shares: Mapping[str, Gain]
    """By party, its Shapley share of what all are worth over nothing."""
    without: Mapping[str, Gain]
    """By party, what is lost when it alone is missing."""


def party_shares(
    task: Task, loss: LossName, parties: Sequence[str], score: ScoreOf, sample: RowSet, *, seed: int
) -> PartyShares:
    """Measure all coalitions of these parties on labelled rows."""
    if len(parties) > MOST_PARTIES:
        raise SettingsError(f"{len(parties)} parties have 2**{len(parties)} coalitions; at most {MOST_PARTIES} do")
    coalitions = [frozenset(some) for size in range(len(parties) + 1) for some in combinations(parties, size)]
    scores = [_read(task, loss, score(each), sample) if each else _constant(task, loss, sample) for each in coalitions]
    values, deviations = resampled(task, scores, sample, seed=seed, loss=loss)
    if not np.isfinite(values).all():
        raise DataError("the metric is not defined on these rows; give rows of more than one class or value")
    place = {each: number for number, each in enumerate(coalitions)}

    def figure(weights: NDArray[np.float64]) -> Gain:
        value = float(values @ weights)
        if not len(deviations):
            return Gain(value, None, None)
        low, high = np.quantile(deviations @ weights, [0.025, 0.975]).tolist()
        return Gain(value, value + low, value + high)

    everyone = frozenset(parties)
    whole = _weights(place, {everyone: 1.0})
    return PartyShares(
        worth=figure(whole),
        nothing=float(values[place[frozenset()]]),
        shares={name: figure(_weights(place, _shapley(name, coalitions, len(parties)))) for name in parties},
        without={name: figure(_weights(place, {everyone: 1.0, everyone - {name}: -1.0})) for name in parties},
    )


def _shapley(party: str, coalitions: Sequence[Coalition], parties: int) -> dict[Coalition, float]:
    """How much each coalition's worth counts in a party's share."""
    found: dict[Coalition, float] = {}
    for each in coalitions:
        others = len(each - {party})
        share = factorial(others) * factorial(parties - 1 - others) / factorial(parties)
        found[each] = share if party in each else -share
    return found


def _weights(place: Mapping[Coalition, int], of: Mapping[Coalition, float]) -> NDArray[np.float64]:
    weights = np.zeros(len(place))
    for each, weight in of.items():
        weights[place[each]] += weight
    return weights


def _read(task: Task, loss: LossName, score: Floats, sample: RowSet) -> Floats:
    """The score as its metric reads it: an AUC needs no scale and no offset."""
    if task == "binary":
        return score
    return calibrate(loss, score.astype(np.float64), sample).apply(score.astype(np.float64))


def _constant(task: Task, loss: LossName, sample: RowSet) -> Floats:
    """The best score that is the same for all rows."""
    count = len(sample)
    match task:
        case "binary":
            return np.zeros((count, 1))
        case "multiclass":
            chances = np.bincount(sample.labels.astype(np.int64), sample.weights)
            return np.tile(chances, (count, 1))
        case "regression":
            best = regression_loss(loss_named(loss)).constant(sample.labels, sample.weights)
            return np.full((count, 1), best)
