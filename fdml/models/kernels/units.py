"""Passes over the units of a network's layers: weighted sums, ReLU, and units that are left out."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from fdml.models.kernels.compiler import kernel
from fdml.models.losses import Floats

Sizes = NDArray[np.int64]


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def weigh(below: Floats, cells: Floats, above: Floats) -> None:
    """Write the weighted sums of a layer's units to the next one's."""
    size = len(below)
    for v in range(len(above)):
        weights = cells[v * size : (v + 1) * size]
        total = cells.dtype.type(0.0)
        for u in range(size):
            total += below[u] * weights[u]
        above[v] = total


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def finish(layer: Floats, theta: Floats, bias_at: int, scale: float, hidden: bool) -> None:
    """Scale the weighted sums, add the biases if there are any, and bend hidden units."""
    if bias_at < len(theta):
        biases = theta[bias_at : bias_at + len(layer)]
        for u in range(len(layer)):
            layer[u] = layer[u] * scale + biases[u]
    else:
        for u in range(len(layer)):
            layer[u] *= scale
    if hidden:
        for u in range(len(layer)):
            layer[u] = max(layer[u], theta.dtype.type(0.0))


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def mixed(x: np.uint64) -> np.uint64:
    """The last step of SplitMix64: near numbers become far ones."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _drop(layer: Floats, dropout: float, drawn: np.uint64, first: int) -> None:
    """Leave out units, each with this chance, and make up for it in the others; `first` numbers the layer's first."""
    kept = layer.dtype.type(1.0 / (1.0 - dropout))
    for u in range(len(layer)):
        chance = np.float64(mixed(drawn + np.uint64(first + u)) >> np.uint64(11)) * 2.0**-53
        layer[u] = layer[u] * kept if chance >= dropout else layer.dtype.type(0.0)


@kernel
def predict_dropped(
    theta: Floats,
    decayed: int,
    scale: float,
    sizes: Sizes,
    features: int,
    dropout: float,
    drawn: int,
    echo: float,
    units: Floats,
) -> None:
    """From the units of all layers of a row to those without the hidden units that are left out.

    Of the prediction's change only a part is taken, which the echo makes whole again.
    """
    kind = theta.dtype.type
    last = units[len(units) - sizes[-1] :]
    whole = last.copy()
    weight_at, bias_at, unit_at = features * sizes[0], decayed + sizes[0], 0
    for depth in range(1, len(sizes)):
        below = units[unit_at : unit_at + sizes[depth - 1]]
        _drop(below, dropout, np.uint64(drawn), unit_at)
        unit_at += sizes[depth - 1]
        above = units[unit_at : unit_at + sizes[depth]]
        cells = sizes[depth - 1] * sizes[depth]
        weigh(below, theta[weight_at : weight_at + cells], above)
        weight_at += cells
        finish(above, theta, bias_at, kind(scale), depth < len(sizes) - 1)
        bias_at += sizes[depth]
    for k in range(len(last)):
        last[k] = whole[k] + (last[k] - whole[k]) / kind(max(echo, 1.0))


@kernel
def scale_errors(dropout: float, sizes: Sizes, errors: Floats) -> None:
    """Units that were kept count 1 / (1 - dropout) times, and so does what reaches them from above, layer by layer."""
    factor, unit_at = 1.0, errors.shape[1] - sizes[-1]
    for depth in range(len(sizes) - 2, -1, -1):
        factor /= 1.0 - dropout
        for row in range(len(errors)):
            for u in range(unit_at - sizes[depth], unit_at):
                errors[row, u] *= errors.dtype.type(factor)
        unit_at -= sizes[depth]
