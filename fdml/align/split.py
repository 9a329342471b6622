"""Which shared rows are trained on, in which order, and which are held out; drawn from the run's seed alone.

Every generation of an alignment is split and shuffled by itself, and they follow one another. So rows that come later
change neither the order of those before nor which of them are held out.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from fdml.align.key_lists import FoundRows
from fdml.errors import DataError
from fdml.protocol.shuffle import permutation


def shuffled_rows(rows: int, seed: int) -> NDArray[np.int64]:
    """The order in which a run numbers its training rows."""
    return permutation(rows, seed, "align")


def held_out_count(rows: int, holdout: float) -> int:
    """How many of the shared rows are held out, where the parties have no test files."""
    return round(rows * holdout)


def split_rows(rows: int, holdout: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers to train on and to hold out, each in ascending order."""
    _check_split(rows, holdout)
    order, held = permutation(rows, seed, "holdout"), held_out_count(rows, holdout)
    return np.sort(order[held:]), np.sort(order[:held])


def _check_split(rows: int, holdout: float) -> None:
    held = held_out_count(rows, holdout)
    if held < 1 or held >= rows:
        raise DataError(
            f"holding out {holdout:g} of {rows} rows leaves {rows - held} to train on and {held} to test on"
        )


def order_of(found: FoundRows, holdout: float | None, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the found rows to train on and to hold out, in the run's order; without a holdout none is held out."""
    if holdout is not None:
        _check_split(len(found.left), holdout)
    train, held_out = [], []
    begins = accumulate(found.sizes, initial=0)
    for number, (begin, end) in enumerate(pairwise(begins)):
        key: tuple[int | str, ...] = (number,) if number else ()
        held = 0 if holdout is None else held_out_count(end, holdout) - held_out_count(begin, holdout)
        rows = np.arange(begin, end) if holdout is None else permutation(end - begin, seed, "holdout", *key)
        if holdout is not None:  # in place, as there may be many
            rows[:held].sort()
            rows[held:].sort()
            rows += begin
        held_out.append(rows[:held].copy())
        train.append(rows[held:][permutation(len(rows) - held, seed, "align", *key)])
    both = [each[0] if len(each) == 1 else np.concatenate([np.zeros(0, np.int64), *each]) for each in (train, held_out)]
    if not found.left.any():
        return both[0], both[1]
    return both[0][~found.left[both[0]]], both[1][~found.left[both[1]]]


def split_counts(found: FoundRows, holdout: float | None, seed: int) -> tuple[int, int]:
    """How many rows are trained on and held out."""
    if found.left.any():
        train, held_out = order_of(found, holdout, seed)
        return len(train), len(held_out)
    rows = len(found.left)
    held = 0 if holdout is None else held_out_count(rows, holdout)
    return rows - held, held
