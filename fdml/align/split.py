"""Which shared rows are trained on, in which order, and which are held out; drawn from the run's seed alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
    order = permutation(rows, seed, "holdout")
    held = held_out_count(rows, holdout)
    if held < 1 or held >= rows:
        raise DataError(
            f"holding out {holdout:g} of {rows} rows leaves {rows - held} to train on and {held} to test on"
        )
    return np.sort(order[held:]), np.sort(order[:held])
