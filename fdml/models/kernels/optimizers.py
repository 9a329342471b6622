"""Update rules: how the gradient of a batch changes the parameters.

Parameters are one flat vector: `decayed` weights that L2 shrinks, then biases.
With plain SGD the weights are stored divided by `scale`, so that L2 costs one
multiplication per batch instead of one per weight.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import types
from numba.extending import overload
from numpy.typing import NDArray

from fdml.models.kernels.compiler import kernel
from fdml.models.losses import Floats
from fdml.settings.choices import OptimizerName

SGD, MOMENTUM, ADAGRAD, ADAM, COLLECT, FACTORED = range(6)
RULES: dict[OptimizerName, int] = {"sgd": SGD, "momentum": MOMENTUM, "adagrad": ADAGRAD, "adam": ADAM}
"""The numbers under which kernels know the update rules; `COLLECT` leaves the gradient in the state, and no more."""
ALL_RULES: dict[OptimizerName, int] = {**RULES, "factored": FACTORED}
"""With the one that nets alone have: Adam, but of a first layer as in `fdml.models.kernels.factored`."""
_SMALLEST_SCALE = 1e-3
ADAM_BETA2 = 0.999
ADAM_EPSILON = 1e-8
_ADAGRAD_EPSILON = 1e-10


class UpdateRule(NamedTuple):
    """How a gradient changes the parameters."""

    optimizer: int
    """One of `ALL_RULES`, or `COLLECT`."""
    l2: float
    momentum: float
    decayed: int
    """How many parameters are weights, which L2 shrinks; the rest are biases."""


class OptimizerState(NamedTuple):
    """Parameters and what the update rule needs from earlier updates; arrays that a rule does not need are empty."""

    theta: Floats
    gradient: Floats
    first: Floats
    second: Floats
    counters: NDArray[np.float64]
    """[scale of the weights, number of updates so far; with SGD only differentially private ones are counted]."""


def new_optimizer_state(theta: Floats, optimizer: int, table: tuple[int, int] = (0, 0)) -> OptimizerState:
    """The state before the first update of these parameters; the first may be a table, `(features, units)`."""
    empty = np.zeros(0, theta.dtype)
    if optimizer == FACTORED:
        rest = np.zeros(len(theta) - table[0] * table[1], theta.dtype)
        second = np.zeros(sum(table) + len(rest), theta.dtype)
        return OptimizerState(theta, rest, rest.copy(), second, np.array([1.0, 0.0]))
    return OptimizerState(
        theta=theta,
        gradient=empty if optimizer == SGD else np.zeros_like(theta),
        first=empty if optimizer == SGD else np.zeros_like(theta),
        second=np.zeros_like(theta) if optimizer == ADAM else empty,
        counters=np.array([1.0, 0.0]),
    )


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def begin_update(rule: UpdateRule, state: OptimizerState, rate: float) -> tuple[float, float]:
    """Prepare one update; returns the factors of a gradient as it is added to weights and to biases.

    With SGD it is added to the parameters themselves, else to `state.gradient`.
    """
    if rule.optimizer != SGD:
        state.gradient[:] = 0.0
        return 1.0, 1.0
    # SGD with L2:  w <- (1 - rate l2) w - rate g.  The weights are w = scale * theta, so the shrinking is one
    # multiplication of `scale`, and g is added to theta divided by the new scale. Biases:  b <- b - rate g.
    state.counters[0] *= 1.0 - rate * rule.l2
    if state.counters[0] < _SMALLEST_SCALE:
        factor = state.theta.dtype.type(state.counters[0])
        for i in range(rule.decayed):
            state.theta[i] *= factor
        state.counters[0] = 1.0
    return -rate / state.counters[0], -rate


def gradient_target(rule: UpdateRule, state: OptimizerState, clip: float | None) -> Floats:
    """The array that a gradient is added to: with SGD the parameters, else `state.gradient`. For kernels only.

    With a clip it is always the latter: in double precision, so that no row's rounding depends on other rows.
    """
    raise NotImplementedError


@overload(gradient_target, inline="always", strict=False)
def _gradient_target(rule: Any, state: Any, clip: Any) -> Any:
    if isinstance(clip, types.Float):
        return lambda rule, state, clip: state.gradient
    return lambda rule, state, clip: state.theta if rule.optimizer == SGD else state.gradient


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def end_update(rule: UpdateRule, state: OptimizerState, rate: float) -> None:
    """Apply the gradient that was collected; with SGD it has been applied already."""
    if rule.optimizer == SGD or rule.optimizer == COLLECT:
        return
    theta, gradient = state.theta, state.gradient
    kind = theta.dtype.type
    state.counters[1] += 1.0
    # g <- g + l2 w, for weights alone
    for i in range(rule.decayed):
        gradient[i] += kind(rule.l2) * theta[i]
    if rule.optimizer == MOMENTUM:
        # m <- momentum m + g;  theta <- theta - rate m
        for i in range(len(theta)):
            state.first[i] = kind(rule.momentum) * state.first[i] + gradient[i]
            theta[i] -= kind(rate) * state.first[i]
    elif rule.optimizer == ADAGRAD:
        # s <- s + g^2;  theta <- theta - rate g / (sqrt(s) + 1e-10)
        for i in range(len(theta)):
            state.first[i] += gradient[i] * gradient[i]
            theta[i] -= kind(rate) * gradient[i] / (math.sqrt(state.first[i]) + kind(_ADAGRAD_EPSILON))
    else:
        # Adam, update t:  m <- beta1 m + (1 - beta1) g;  s <- beta2 s + (1 - beta2) g^2;
        # then  theta <- theta - rate (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + 1e-8)
        beta1, beta2 = kind(rule.momentum), kind(ADAM_BETA2)
        rest1, rest2 = kind(1.0 - rule.momentum), kind(1.0 - ADAM_BETA2)
        correct1 = kind(1.0 / (1.0 - rule.momentum ** state.counters[1]))
        correct2 = kind(1.0 / (1.0 - ADAM_BETA2 ** state.counters[1]))
        for i in range(len(theta)):
            state.first[i] = beta1 * state.first[i] + rest1 * gradient[i]
            state.second[i] = beta2 * state.second[i] + rest2 * gradient[i] * gradient[i]
            root = math.sqrt(state.second[i] * correct2) + kind(ADAM_EPSILON)
            theta[i] -= kind(rate) * state.first[i] * correct1 / root


@kernel
def descend(rule: UpdateRule, state: OptimizerState, rate: float, gradient: NDArray[np.float64]) -> None:
    """One update of SGD by a gradient that was made elsewhere."""
    weight_factor, bias_factor = begin_update(rule, state, rate)
    for i in range(len(gradient)):
        state.theta[i] += (weight_factor if i < rule.decayed else bias_factor) * gradient[i]
