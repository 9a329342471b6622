"""Which keys all parties hold. The server knows keys only: hashes or blinded points, never ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.alignment_messages import BlindedIds, Keys, RowCounts, SharedRowIndex, Tokens
from fdml.protocol.key_sets import ascending, position_digest, shared_digest, words


def shared_keys(sets: Sequence[Keys]) -> tuple[list[NDArray[np.int64]], Keys]:
    """For every set the places of the keys that all sets hold, in ascending order of the keys, and these keys.

    No set may hold a key twice.
    """
    begins = np.cumsum([0, *map(len, sets)])
    everything = np.concatenate(sets)
    order = ascending(everything)
    values = words(everything)[order]
    last = len(sets) - 1
    # No key is there more often than there are sets, so two equal ones this far apart have one of every set between.
    first = np.flatnonzero((values[last:] == values[: max(len(values) - last, 0)]).all(axis=1))
    # The order of equal keys is that of the sets, as the sort is stable.
    places = [order[first + number] - begins[number] for number in range(len(sets))]
    return places, everything[order[first]]


def match_rows(sets: Sequence[Tokens | BlindedIds]) -> list[SharedRowIndex]:
    """The shared rows of each party. All have test sets or none has; all are matched by position or none is."""
    counted = [each.by_position for each in sets if isinstance(each, Tokens) and each.by_position is not None]
    if counted:
        return [_in_position(counted[0], len(sets))] * len(sets)
    counts = tuple(len(each.train) for each in sets)
    train, keys = shared_keys([each.train for each in sets])
    tests = [each.test for each in sets if each.test is not None]
    if not tests:
        digest, none = shared_digest(keys, None), np.zeros(0, np.int64)
        return [SharedRowIndex(places, none, digest, counts) for places in train]
    test, test_keys = shared_keys(tests)
    digest = shared_digest(keys, test_keys)
    return [SharedRowIndex(places, held_out, digest, counts) for places, held_out in zip(train, test, strict=True)]


def _in_position(rows: RowCounts, parties: int) -> SharedRowIndex:
    held_out = np.arange(rows.test or 0, dtype=np.int64)
    return SharedRowIndex(
        np.arange(rows.train, dtype=np.int64), held_out, position_digest(rows), (rows.train,) * parties
    )
