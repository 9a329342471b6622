"""Starting parameters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.shuffle import stream

_FACTOR_SPREAD = 0.05


def generator(*key: int | str) -> np.random.Generator:
    """A generator whose stream depends on the key alone."""
    return np.random.Generator(np.random.Philox(stream(*key)))


def fm_weights(width: int, outputs: int, factors: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Weights zero, factors small and random: equal factors would stay equal for ever."""
    cells = np.zeros((width * outputs, 1 + factors))
    cells[:, 1:] = random.normal(0.0, _FACTOR_SPREAD, (width * outputs, factors))
    return cells.ravel()


def mlp_weights(width: int, sizes: list[int], random: np.random.Generator) -> NDArray[np.float64]:
    """He's initial weights for hidden layers, half that variance for the outputs."""
    inputs = [width, *sizes[:-1]]
    gains = [2.0] * (len(sizes) - 1) + [1.0]
    return np.concatenate(
        [
            random.normal(0.0, np.sqrt(gain / max(fan_in, 1)), fan_in * units)
            for fan_in, units, gain in zip(inputs, sizes, gains, strict=True)
        ]
    )
