"""DP-SGD: what one row can change in a party's own training is bounded, and noise hides the rest.

The gradient of each row's weighted loss, in all parameters together, is clipped
to length `clip`; the sum over a batch gets normal noise of standard deviation
`sigma` in every parameter. L2 knows no rows and stays outside of both. Which rows
are in a batch is known to all, so nothing is gained by their being drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdml.errors import SettingsError
from fdml.privacy.noise import NoiseKey

WAY_OUT = "or leave [guard.training] out of party.toml"
"""How errors end."""


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

    def noise(self, update: int, size: int) -> NDArray[np.float64]:
        """What is added to the sum of the gradients in update number `update`, counted from 0 over the whole run.

        It follows from key and number alone, so that an update computed again after a crash meets the same noise.
        """
        return self.sigma * self.key.normals("gradient", update, size)
