"""The loss of totals as they were received, for the curve of the training loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fdml.models.objective import Objective
from fdml.protocol.fixed_point import Codes, decode

_AT_ONCE = 8192
"""Rows whose loss is computed at once: few stay in the cache."""


def with_loss(
    before: float, total: Codes, labels: NDArray[np.float64], weights: NDArray[np.float64], objective: Objective
) -> float:
    """A sum of losses with those of a block's totals, as they were released: others get the sum."""
    for first in range(0, len(labels), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        totals = decode(total[some]).astype(np.float32)
        values = objective.value(totals, labels[some])
        before += float(values.astype(np.float64) @ weights[some])
    return before
