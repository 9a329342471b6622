"""Randomised response: labels that may be shown, as any of them may be wrong."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

DRAW_BYTES = 16
"""Random bytes that one answer takes."""
_BITS = 52
_HALF_STEP = 2.0**-53
"""Keeps draws off 0 and 1."""


def chance_of_truth(epsilon: float, classes: int) -> float:
    """How likely a label is kept: e^epsilon times as likely as any one of the others."""
    return 1.0 / (1.0 + (classes - 1) * math.exp(-epsilon))


def draws_of(random: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Two uniform numbers for each row of random bytes `(rows, DRAW_BYTES)`."""
    words = np.ascontiguousarray(random).view("<u8")
    numbers: NDArray[np.float64] = (words >> np.uint64(64 - _BITS)).astype(np.float64)
    return numbers * 2.0**-_BITS + _HALF_STEP


def randomised(
    labels: NDArray[np.float64], classes: int, epsilon: float, draws: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Every label kept, or moved to one of the other classes, by its two draws.

    Whoever sees all that follows from these labels, however often, learns of each true one no more than epsilon
    allows, as long as the same draws are used for the same labels.
    """
    chance, choice = draws[:, 0], draws[:, 1]
    moved = 1.0 + np.floor(choice * (classes - 1))
    return np.where(chance < chance_of_truth(epsilon, classes), labels, (labels + moved) % classes)
