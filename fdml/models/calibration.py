"""Scale and offset of a score: for late fusion, and where the parties exchanged only a few times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from fdml.data.row_set import RowSet
from fdml.models.losses import Floats, loss_named
from fdml.settings.choices import LossName


@dataclass(frozen=True)
class Calibration:
    """A score times `scale` plus `offset`, one offset per score or one for all."""

    scale: float
    offset: NDArray[np.float64]

    def apply(self, score: Floats) -> Floats:
        """The calibrated score."""
        return self.scale * score + self.offset


IDENTITY = Calibration(1.0, np.zeros(1))


def calibrate(loss: LossName, score: Floats, sample: RowSet) -> Calibration:
    """The scale and offset with the least loss on these rows."""
    kind = loss_named(loss)
    share = sample.weights / sample.weights.sum()

    def value_and_slope(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        moved = point[0] * score + point[1:]
        slope = kind.gradient(moved, sample.labels) * share[:, None]
        value = float(share @ kind.value(moved, sample.labels))
        return value, np.concatenate([[np.sum(slope * score)], slope.sum(axis=0)])

    start = np.concatenate([[1.0], np.zeros(score.shape[1])])
    found = scipy.optimize.minimize(value_and_slope, start, jac=True, method="L-BFGS-B").x
    return Calibration(float(found[0]), found[1:])
