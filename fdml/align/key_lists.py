"""The keys that a party has posted over all generations of an alignment; a key's place in this list never changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.alignment_messages import Keys
from fdml.protocol.key_sets import ascending, words

RowIndex = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KeyList:
    """Keys in the order of posting. Those of ids that a party no longer has stay in their place and count as gone."""

    keys: Keys
    gone: NDArray[np.bool_]

    @classmethod
    def of(cls, keys: Keys) -> KeyList:
        """A list of keys that are all there."""
        return cls(keys, np.zeros(len(keys), bool))

    @property
    def present(self) -> int:
        """How many have not gone."""
        return int((~self.gone).sum())

    def after(self, gone: RowIndex, new: Keys) -> KeyList:
        """The list after some have gone and new ones have come."""
        going = self.gone.copy()
        going[gone] = True
        return KeyList(
            np.concatenate([self.keys, new]) if len(self.keys) else new,
            np.concatenate([going, np.zeros(len(new), bool)]),
        )

    def find(self, keys: Keys) -> RowIndex:
        """The place of each of these different keys among those that have not gone; -1 where it is not there."""
        here = np.flatnonzero(~self.gone)
        places = np.full(len(keys), -1, np.int64)
        if not len(here) or not len(keys):
            return places
        both = np.concatenate([self.keys[here], keys])
        order = ascending(both)
        values = words(both)[order]
        same = np.flatnonzero((values[1:] == values[:-1]).all(axis=1))
        # Equal keys keep their order, so the one of the list is the first of the two.
        places[order[same + 1] - len(here)] = here[order[same]]
        return places

    def may_go(self, places: RowIndex) -> bool:
        """Whether these are places of keys that have not gone."""
        return bool((places < len(self.keys)).all() and not self.gone[places].any())


@dataclass(frozen=True, eq=False)
class FoundRows:
    """The rows that all parties share, over all generations, in the order in which they were found.

    A row that is no longer shared keeps its number and counts as left.
    """

    sizes: tuple[int, ...]
    """How many rows each generation has found."""
    left: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: int) -> FoundRows:
        """What a first generation has found."""
        return cls((rows,), np.zeros(rows, bool))

    @property
    def present(self) -> int:
        """How many have not left."""
        return int((~self.left).sum())

    def after(self, left: RowIndex, new: int) -> FoundRows:
        """The rows after some have left and new ones were found."""
        leaving = self.left.copy()
        leaving[left] = True
        return FoundRows((*self.sizes, new), np.concatenate([leaving, np.zeros(new, bool)]))

    def may_leave(self, rows: RowIndex) -> bool:
        """Whether these are different rows that have not left."""
        return bool((rows < len(self.left)).all() and not self.left[rows].any() and len(np.unique(rows)) == len(rows))
