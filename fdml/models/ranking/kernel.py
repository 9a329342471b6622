"""The compiled loop over pairs of rows of one group."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fdml.models.kernels.compiler import exact_kernel

Values = NDArray[np.float64]
Numbers = NDArray[np.int64]


@exact_kernel
def compare(
    scores: Values,
    labels: Values,
    group_of: Numbers,
    members: Numbers,
    bounds: Numbers,
    start: int,
    pulls: Values,
    losses: Values,
) -> None:
    """Write dLoss/dscore and the loss of the rows from `start` on.

    With n rows in the group of row i, the sums over its rows j of another label whose score is known, and
    m = s_i - s_j where row i is the positive one, else s_j - s_i:

        pull_i = -+ sum_j 1 / (1 + exp(m)) / (n - 1),     loss_i = sum_j log(1 + exp(-m)) / (2 (n - 1)).
    """
    for at in range(len(pulls)):
        row = start + at
        begin, end = bounds[group_of[row]], bounds[group_of[row] + 1]
        sign = 2.0 * labels[row] - 1.0
        pull, loss = 0.0, 0.0
        for place in range(begin, end):
            other = members[place]
            if labels[other] == labels[row] or math.isnan(scores[other]):
                continue
            margin = sign * (scores[row] - scores[other])
            small = math.exp(-abs(margin))
            loss += math.log1p(small) + max(-margin, 0.0)
            pull += small / (1.0 + small) if margin >= 0.0 else 1.0 / (1.0 + small)
        share = 1.0 / max(end - begin - 1, 1)
        pulls[at] = -sign * pull * share
        losses[at] = 0.5 * loss * share
