"""DP-SGD: what one row can change in a party's own training is bounded, and noise hides the rest.

The gradient of each row's weighted loss, in all parameters together, is clipped
to length `clip`; the sum over a batch gets normal noise of standard deviation
`sigma` in every parameter. L2 knows no rows and stays outside of both. Which rows
are in a batch is known to all, so nothing is gained by their being drawn.

The sum is made in double precision and rounded to a grid; the noise is a discrete
Gaussian on that grid, drawn exactly (`fdml.privacy.discrete_noise`). So no low bit
of a float tells of a row. Parameters are made of the noisy sum alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdml.errors import SettingsError
from fdml.privacy.discrete_noise import LARGEST_SCALE, noise_on_grid
from fdml.privacy.noise import NoiseKey

WAY_OUT = "or leave [guard.training] out of party.toml"
"""How errors end."""
_FINE = 36
"""The grid's step is the clip times 2^-36: rounding up to 2^30 parameters moves a sum by less than `_ROUNDING`."""
_ROUNDING = 2.0**-21
"""A row is clipped to so much less than `clip`, as a share: more than floats and the grid can round up."""


@dataclass(frozen=True)
class DpSgd:
    """How a party's own training is kept private. The key must serve one run only."""

    clip: float
    """No row's gradient is longer."""
    sigma: float
    """Standard deviation of the noise on the sum of a batch's gradients."""
    key: NoiseKey

    def __post_init__(self) -> None:
        if not 0.0 < self.clip < math.inf:
            raise SettingsError(f"guard.training.clip is {self.clip}; give a positive number")
        if not 0.0 <= self.sigma < math.inf:
            raise SettingsError(f"guard.training.sigma is {self.sigma}; give a number that is not negative")

    @property
    def row_clip(self) -> float:
        """What models clip a row's gradient to, so that with all rounding it moves a sum by at most `clip`."""
        return self.clip * (1.0 - _ROUNDING)

    @property
    def step(self) -> float:
        """Of the grid on which sums get their noise: a power of two, coarser only where sigma is 2^15 clips."""
        return 2.0 ** max(math.frexp(self.clip)[1] - _FINE, math.frexp(self.sigma / LARGEST_SCALE)[1])

    def noisy(self, update: int, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of a batch's clipped gradients with the noise of update number `update`, counted over the whole run.

        The noise follows from key and number alone, so that an update computed again after a crash meets the same.
        """
        if self.sigma == 0.0:
            return total
        noise = noise_on_grid("gaussian", self.sigma, self.step).draw(self.key, "gradient", update, len(total))
        steps: NDArray[np.float64] = (np.rint(total / self.step).astype(np.int64) + noise).astype(np.float64)
        return steps * self.step
