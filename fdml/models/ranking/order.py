"""How good the order of rows within their groups is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdml.data.row_set import RowSet
from fdml.errors import DataError
from fdml.models.loss_protocol import Floats

DEPTH = 10
"""The places that NDCG looks at."""


class GroupOrder(NamedTuple):
    """Figures of each group that has rows of both labels; rows of equal score count as in any order, on average."""

    auc: NDArray[np.float64]
    """The share of pairs that are in the right order."""
    ndcg: NDArray[np.float64]
    """Normalised discounted cumulative gain of the first 10 places."""


def order_in_groups(score: Floats, sample: RowSet) -> GroupOrder:
    """The figures of all groups of these rows."""
    if sample.groups is None:
        raise DataError('loss "pairwise" ranks rows of a group, and these rows have no groups; set data.group')
    _, group = np.unique(sample.groups, return_inverse=True)
    flat = np.asarray(score[:, 0], np.float64)
    order = np.lexsort((-flat, group))  # the highest score of each group first
    group, flat, positive = group[order], flat[order], sample.labels[order] > 0
    is_first = np.append(True, (np.diff(group) != 0) | (np.diff(flat) != 0))
    tie = np.cumsum(is_first) - 1
    of_tie, ties, count = group[is_first], int(tie[-1]) + 1, int(group[-1]) + 1
    places = np.arange(len(group)) - np.searchsorted(group, group)
    discounts = np.where(places < DEPTH, 1.0 / np.log2(places + 2.0), 0.0)
    ones, rows = np.bincount(tie, positive, ties), np.bincount(tie, minlength=ties)
    gained = np.bincount(of_tie, ones * np.bincount(tie, discounts, ties) / rows, count)
    positives = np.bincount(of_tie, ones, count)
    negatives = np.bincount(of_tie, rows - ones, count)
    above = np.cumsum(rows - ones) - (rows - ones)  # negatives with a higher score, of groups before, too
    above = above - (np.cumsum(negatives) - negatives)[of_tie]
    won = np.bincount(of_tie, ones * (negatives[of_tie] - above - 0.5 * (rows - ones)), count)
    best = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(DEPTH) + 2.0))])
    both = (positives > 0) & (negatives > 0)
    ideal = best[np.minimum(positives[both].astype(np.int64), DEPTH)]
    return GroupOrder(won[both] / (positives[both] * negatives[both]), gained[both] / ideal)


def ranking_figures(score: Floats, sample: RowSet) -> dict[str, float | None]:
    """The mean of each figure over the groups that have rows of both labels; None where there is no such group."""
    found = order_in_groups(score, sample)
    if not len(found.auc):
        return {"group_auc": None, "ndcg": None}
    return {"group_auc": float(found.auc.mean()), "ndcg": float(found.ndcg.mean())}
