"""The prediction matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.fixed_point import INT64, Codes, FixedPoint
from fdml.protocol.messages import Release
from fdml.protocol.schedule import Visit


class Contribution(NamedTuple):
    """One party's part of a total, and the step for which it was pushed; -1 if none was."""

    pushed_at: int
    release: Release


class PredictionMatrix:
    """The last local predictions of every block that all parties have been served; newer ones wait in the coordinator.

    A cell is zero until its party first writes it, so a party that has not
    pushed yet adds nothing to the total.
    """

    def __init__(self, parties: int, blocks: int, rows: int, width: int, grid: FixedPoint = INT64) -> None:
        self._values: Codes = np.zeros((parties, rows, width), grid.dtype)
        self._pushed_at = np.full((parties, blocks), -1, np.int64)
        self._mask_ids = np.zeros((parties, blocks), np.uint64)
        self._variances = np.zeros((parties, blocks))

    def write(self, column: int, visit: Visit, step: int, release: Release) -> None:
        """Set one party's block to what it pushed for a step."""
        self._values[column, visit.start : visit.stop] = release.values
        self._pushed_at[column, visit.block] = step
        self._mask_ids[column, visit.block] = release.mask_id
        self._variances[column, visit.block] = release.variance

    def read(self, column: int, visit: Visit) -> Contribution:
        """What a party last pushed for a block."""
        place = column, visit.block
        values = self._values[column, visit.start : visit.stop]
        release = Release(values, int(self._mask_ids[place]), float(self._variances[place]))
        return Contribution(int(self._pushed_at[place]), release)

    def state(self) -> dict[str, NDArray[Any]]:
        """As arrays."""
        return {
            "matrix": self._values,
            "matrix_pushed_at": self._pushed_at,
            "matrix_mask_ids": self._mask_ids,
            "matrix_variances": self._variances,
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become the matrix that gave these arrays."""
        self._values = arrays["matrix"].copy()
        self._pushed_at = arrays["matrix_pushed_at"].copy()
        self._mask_ids = arrays["matrix_mask_ids"].copy()
        self._variances = arrays["matrix_variances"].copy()

    def column(self, column: int) -> Codes:
        """All predictions of one party, `(rows, width)`; not to be written to."""
        view: Codes = self._values[column]
        view.flags.writeable = False
        return view
