"""A trained local model as plain weights, for other programs: layers with ReLU between them, and pairs of features.

p = layers(x) + 1/2 sum_f ((x V_f)^2 - x^2 V_f^2), the second part only where there are factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fdml.models.losses import Floats


@dataclass(frozen=True, eq=False)
class Layer:
    """x times `weights` plus `bias`."""

    weights: Floats
    """`(inputs, units)`."""
    bias: Floats
    """`(units,)`."""


@dataclass(frozen=True, eq=False)
class PlainModel:
    """All of a model that its predictions need, in double precision."""

    layers: tuple[Layer, ...]
    """ReLU after each but the last."""
    factors: Floats | None = None
    """`(inputs, width, factors)`, where every pair of features has a product of factors."""


def linear_layers(parameters: Floats, inputs: int, width: int) -> PlainModel:
    """Of weights `(inputs, width)`, then biases, if there are any."""
    return PlainModel((_layer(parameters[: inputs * width].reshape(inputs, width), parameters[inputs * width :]),))


def fm_layers(parameters: Floats, inputs: int, width: int, factors: int) -> PlainModel:
    """Of a weight and its factors for every feature and float of the prediction, then biases, if there are any."""
    cells = parameters[: inputs * width * (1 + factors)].reshape(inputs, width, 1 + factors)
    biases = parameters[inputs * width * (1 + factors) :]
    return PlainModel((_layer(cells[:, :, 0], biases),), cells[:, :, 1:].astype(np.float64))


def mlp_layers(parameters: Floats, inputs: int, sizes: Sequence[int]) -> PlainModel:
    """Of the weights of all layers, the first `(inputs, units)` and later ones `(units, inputs)`, then all biases."""
    layers, below, at = [], inputs, 0
    bias_at = sum(fan * units for fan, units in zip([inputs, *sizes[:-1]], sizes, strict=True))
    for depth, units in enumerate(sizes):
        cells = parameters[at : at + below * units]
        weights = cells.reshape(units, below).T if depth else cells.reshape(below, units)
        layers.append(_layer(weights, parameters[bias_at : bias_at + units]))
        at, bias_at, below = at + below * units, bias_at + units, units
    return PlainModel(tuple(layers))


def _layer(weights: Floats, bias: Floats) -> Layer:
    given = bias if len(bias) else np.zeros(weights.shape[1])
    return Layer(np.ascontiguousarray(weights, np.float64), given.astype(np.float64))
