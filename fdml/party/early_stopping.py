"""When to stop, and which epoch to keep: the one rule, by the losses of held-out rows alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class BestSoFar:
    """What the losses of the epochs up to now say."""

    epoch: int
    """The epoch with the lowest loss; 0 before any was evaluated."""
    final_at: int | None = None
    """The epoch by which it is final, as those since then have gained nothing for long enough; None before."""


def best_so_far(losses: Mapping[int, float | None], stop_after: int) -> BestSoFar:
    """The epoch with the lowest held-out loss, the first of equal ones.

    It is final once `stop_after` further epochs had no lower loss, whatever later ones have. The epochs count in
    their order from 1 on, up to the first that is not known: so the answer does not depend on when it is asked for. A
    loss that is no number gains nothing.
    """
    best, lowest, epoch = 0, math.inf, 1
    while epoch in losses:
        loss = losses[epoch]
        if best == 0 or (loss is not None and loss < lowest):
            best, lowest = epoch, math.inf if loss is None or math.isnan(loss) else loss
        elif epoch - best >= stop_after:
            return BestSoFar(best, epoch)
        epoch += 1
    return BestSoFar(best)
