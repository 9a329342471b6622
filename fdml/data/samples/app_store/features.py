"""What each party of the app store's twin sees of a row: sparse features that are traces of its hidden factors.

Features come in one-hot groups. A group is a noisy look at one factor, cut into
levels of unequal size. A few groups count something instead of only naming it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fdml.data.rows import SparseRows
from fdml.data.samples.app_store.generator import FACTORS, generator

_CELLS = 4096
"""A look at a factor falls into one of so many cells, all equally likely; a level is some cells side by side."""
_COUNTED = 4
"""Every so many groups of a counted kind carry log2(1 + count) instead of 1."""


class FeatureKind(NamedTuple):
    """Groups that are alike."""

    groups: int
    levels: int
    presence: float
    """In how many of the rows such a group has a level at all."""
    clarity: float
    """Correlation of the look with its factor."""
    evenness: float
    """The k-th largest level gets a share like 1 / (k + evenness)."""
    counted: bool = False


_PROFILE, _CONTEXT, _HISTORY = 0.95, 0.70, 0.35
"""How clearly a profile (age, device), the context of a visit, and one of many past downloads show a factor."""
KINDS: dict[str, tuple[FeatureKind, ...]] = {
    "store": (
        FeatureKind(16, 8, 1.0, _PROFILE, 20),
        FeatureKind(14, 48, 0.95, _CONTEXT, 6),
        FeatureKind(20, 310, 0.935, _HISTORY, 40, counted=True),
    ),
    "browser": (
        FeatureKind(3, 8, 1.0, _PROFILE, 20),
        FeatureKind(2, 38, 0.9, _CONTEXT, 6),
        FeatureKind(3, 300, 0.75, _HISTORY, 40, counted=True),
    ),
    "guard": (
        FeatureKind(2, 8, 1.0, _PROFILE, 20),
        FeatureKind(2, 42, 0.9, _CONTEXT, 6),
        FeatureKind(2, 300, 0.6, _HISTORY, 40, counted=True),
    ),
}
"""7,000, 1,000 and 700 features; 48, 7 and 5 of them in a usual row."""


class View:
    """One party's features."""

    def __init__(self, party: str) -> None:
        kinds, factors = KINDS[party], FACTORS[party]
        groups = [kind for kind in kinds for _ in range(kind.groups)]
        places = [place for kind in kinds for place in range(kind.groups)]
        self._party = party
        self._factor = np.array([factors[place % len(factors)] for place in places])
        self._clarity = np.array([kind.clarity for kind in groups], np.float32)
        self._presence = np.array([kind.presence for kind in groups], np.float32)
        pairs = zip(groups, places, strict=True)
        self._counted = np.flatnonzero([kind.counted and place % _COUNTED == 0 for kind, place in pairs])
        self._columns = _columns_of_cells(party, groups)
        self.width = sum(kind.levels for kind in groups)

    def rows(self, factors: NDArray[np.float32], seed: int, chunk: int) -> SparseRows:
        """The features of all rows of a chunk."""
        look = factors[:, self._factor] * self._clarity
        noise = generator(seed, "look", self._party, chunk).standard_normal(look.shape, np.float32)
        look += noise * np.sqrt(1 - self._clarity**2)
        cells = np.minimum((ndtr(look) * _CELLS).astype(np.int32), _CELLS - 1)
        columns = self._columns[np.arange(look.shape[1], dtype=np.int32), cells]
        there = generator(seed, "presence", self._party, chunk).random(look.shape, np.float32) < self._presence
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.count_nonzero(there, axis=1))])
        return SparseRows(indptr, columns[there], self._values(look.shape, seed, chunk)[there], self.width)

    def _values(self, shape: tuple[int, ...], seed: int, chunk: int) -> NDArray[np.float32]:
        values = np.ones(shape, np.float32)
        chance = generator(seed, "counts", self._party, chunk).random((shape[0], len(self._counted)), np.float32)
        values[:, self._counted] = np.log2(2 + np.floor(-np.log1p(-chance)))
        return values


def _columns_of_cells(party: str, groups: Sequence[FeatureKind]) -> NDArray[np.int32]:
    """For every group and cell the feature it means, `(groups, _CELLS)`."""
    chance = generator("world", "levels", party)
    columns, first = [], 0
    for kind in groups:
        shares = 1.0 / (np.arange(kind.levels) + kind.evenness)
        ends = np.cumsum(chance.permutation(shares / shares.sum()))
        level = np.searchsorted(ends, (np.arange(_CELLS) + 0.5) / _CELLS)
        columns.append(first + np.minimum(level, kind.levels - 1))
        first += kind.levels
    return np.array(columns, np.int32)
