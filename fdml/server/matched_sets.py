"""What the server has matched over all generations: the keys of all parties, and the rows that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fdml.align.key_lists import FoundRows, KeyList, RowIndex
from fdml.protocol.alignment_messages import Keys, RowCounts, RowSummary, SharedRowIndex
from fdml.protocol.key_sets import chained_digest, shared_digest
from fdml.server.intersect import shared_keys


@dataclass(frozen=True, eq=False)
class MatchedSets:
    """The training rows, or the test rows, of all parties."""

    lists: tuple[KeyList, ...]
    """By party, all keys that it has posted."""
    places: tuple[RowIndex, ...]
    """By party, where in its list the key of each row is that was ever found."""
    rows: FoundRows

    @classmethod
    def none(cls, parties: int, key_bytes: int) -> MatchedSets:
        """Before the first generation."""
        no_keys, no_places = np.zeros((0, key_bytes), np.uint8), np.zeros(0, np.int64)
        return cls((KeyList.of(no_keys),) * parties, (no_places,) * parties, FoundRows((), np.zeros(0, bool)))

    def posted(self, gone: Sequence[RowIndex], new: Sequence[Keys]) -> MatchedSets:
        """After all parties have posted what has gone and what is new; no row is matched yet."""
        lists = tuple(known.after(gone[at], new[at]) for at, known in enumerate(self.lists))
        return MatchedSets(lists, self.places, self.rows)

    def matched(self, places: Sequence[RowIndex], left: RowIndex) -> MatchedSets:
        """With the rows that a generation has found, and without those that have left."""
        both = zip(self.places, places, strict=True)
        return MatchedSets(
            self.lists,
            tuple(np.concatenate(each) for each in both),
            self.rows.after(left, len(places[0])),
        )

    def match(self) -> tuple[list[RowIndex], Keys, RowIndex]:
        """By party the places of rows that are shared now and were not before, their keys, and rows that have left."""
        present = [np.flatnonzero(~each.gone) for each in self.lists]
        found, keys = shared_keys([known.keys[here] for known, here in zip(self.lists, present, strict=True)])
        places = [here[each] for here, each in zip(present, found, strict=True)]
        known = np.zeros(len(self.lists[0].keys), bool)
        known[self.places[0][~self.rows.left]] = True
        fresh = ~known[places[0]]
        leaving = np.zeros(len(self.rows.left), bool)
        for each, at in zip(self.lists, self.places, strict=True):
            leaving |= each.gone[at]
        return [each[fresh] for each in places], keys[fresh], np.flatnonzero(leaving & ~self.rows.left)


def match_additions(
    sets: Sequence[MatchedSets], own: Sequence[RowCounts], base: bytes, number: int
) -> tuple[list[SharedRowIndex], RowSummary]:
    """What a generation finds that adds to another, whose hash is `base`: for each party, and for all.

    The sets of training and of test rows have all that was posted; `own` is what each party posted now.
    """
    (train, keys, left), (test, test_keys, left_test) = (each.match() for each in sets)
    has_tests = own[0].test is not None
    found = shared_digest(keys, test_keys if has_tests else None)
    digest = chained_digest(base, found, left, left_test)
    present = [tuple(known.present for known in each.lists) for each in sets]
    brought = [[len(known.keys) for known in each.lists] for each in sets]
    summary = RowSummary(
        present[0],
        present[1] if has_tests else (),
        sets[0].matched(train, left).rows.present,
        sets[1].matched(test, left_test).rows.present,
        number=number,
        new_rows=tuple(each.train + (each.test or 0) for each in own),
        new_shared=len(keys) + len(test_keys),
        left=len(left) + len(left_test),
        brought=tuple(map(max, *brought)),
    )
    both = zip(train, test, strict=True)
    return [SharedRowIndex(*places, digest, present[0], left, left_test) for places in both], summary
