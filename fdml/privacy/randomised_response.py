"""Randomised response: labels that may be shown, as any of them may be wrong."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fdml.privacy.noise import NoiseKey

_PURPOSE = "labels"


def chance_of_truth(epsilon: float, classes: int) -> float:
    """How likely a label is kept: e^epsilon times as likely as any one of the others."""
    return 1.0 / (1.0 + (classes - 1) * math.exp(-epsilon))


def randomised(labels: NDArray[np.float64], classes: int, epsilon: float, key: NoiseKey) -> NDArray[np.float64]:
    """Every label kept, or moved to one of the other classes, by the key: drawn once, whatever restarts.

    Whoever sees all that follows from these labels, however often, learns of each
    true one no more than epsilon allows.
    """
    chance, choice = np.split(key.uniforms(_PURPOSE, 0, 2 * len(labels)), 2)
    moved = 1.0 + np.floor(choice * (classes - 1))
    return np.where(chance < chance_of_truth(epsilon, classes), labels, (labels + moved) % classes)
