"""Whether a training has converged, by its losses, epoch by epoch: the one rule, for all who tell it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

Trend = Literal["converged", "falling", "diverged"]
_FEWEST = 3
"""Epochs that say something."""
_RECENT = 4
"""The part of all epochs, one in so many, whose falls are looked at: single epochs go up and down."""
_RISE = 0.1
"""Of the first loss: a last loss so far above the lowest one has diverged."""
_FALL = 0.01
"""Of the last loss: a fall an epoch that is still worth more epochs."""
_SMALL = 0.001
"""Of the first loss: a fall an epoch below it is worth none, however small the loss has become."""


@dataclass(frozen=True)
class Convergence:
    """What the losses of a training say."""

    trend: Trend
    text: str
    """For a person; empty where it has converged."""


def convergence_of(losses: Sequence[float | None]) -> Convergence | None:
    """What these mean training losses of one epoch after the other say; None where they are too few to tell.

    The fall is the median of the last epochs': with a step size that ends at zero the very last say little.
    """
    known = [loss for loss in losses if loss is not None]
    if len(known) < _FEWEST:
        return None
    first, last, lowest = known[0], known[-1], min(known)
    if not all(map(math.isfinite, known)) or last - lowest > _RISE * abs(first):
        rose = f"from {lowest:.4g} to {last:.4g}" if math.isfinite(last) else "beyond all bounds"
        return Convergence("diverged", f"diverged: the loss rose {rose}; lower learning_rate")
    falls = [before - after for before, after in pairwise(known)]
    fall = median(falls[-max(_FEWEST, len(falls) // _RECENT) :])
    if fall > max(_FALL * abs(last), _SMALL * abs(first)):
        share = fall / abs(last) if last else 1.0
        return Convergence("falling", f"not converged: the loss still falls {100 * share:.0f} % an epoch; raise epochs")
    return Convergence("converged", "")
