"""Compiled passes of the head. They give the same bits on every machine.

So there is no fast mathematics here, no library's exp or power, and no order of additions but the one that is written:
additions, products, quotients and square roots are the same everywhere. All is in double precision.

theta holds W1 `(units, vector)`, b1 `(units)` and W2 `(scores, units)`. A total is S0 `(scores)`, then S `(vector)`:
score = S0 + W2 relu(W1 S + b1).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from fdml.models.kernels.compiler import exact_kernel
from fdml.models.kernels.gradients import HINGE, LEVELS, LOGISTIC, POISSON, QUANTILE, SQUARED
from fdml.settings.choices import LARGEST_LOG

Values = NDArray[np.float64]
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts, of which small multiples of the first are exact."""
_PER_LN2 = 1.4426950408889634
_FARTHEST = 700.0
_TERMS = 14
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
"""Of Adam."""


class HeadState(NamedTuple):
    """Parameters of the head and what Adam keeps of earlier updates."""

    theta: Values
    first: Values
    second: Values
    powers: Values
    """beta1^t and beta2^t after t updates."""


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _exp(x: float) -> float:
    """exp(x) = 2^k exp(r) with r in [-ln 2 / 2, ln 2 / 2], by its series."""
    x = min(max(x, -_FARTHEST), _FARTHEST)
    k = math.floor(x * _PER_LN2 + 0.5)
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    total = 1.0
    for n in range(_TERMS, 0, -1):
        total = 1.0 + total * r / n
    return math.ldexp(total, int(k))


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _forward(theta: Values, total: Values, units: Values, out: Values) -> None:
    """Write the hidden units of a row to `units` and its scores to `out`."""
    scores, hidden = len(out), len(units)
    vector = len(total) - scores
    bias_at, last_at = hidden * vector, hidden * (vector + 1)
    for u in range(hidden):
        value = theta[bias_at + u]
        for i in range(vector):
            value += theta[u * vector + i] * total[scores + i]
        units[u] = max(value, 0.0)
    for k in range(scores):
        value = total[k]
        for u in range(hidden):
            value += theta[last_at + k * hidden + u] * units[u]
        out[k] = value


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _loss_gradient(loss: int, score: Values, label: float, out: Values) -> None:
    """dLoss/dscore of one row, as `fdml.models.kernels.gradients.loss_gradient`."""
    if loss == LOGISTIC:
        out[0] = 1.0 / (1.0 + _exp(-score[0])) - label
    elif loss == HINGE:
        sign = 2.0 * label - 1.0
        out[0] = -sign if sign * score[0] < 1.0 else 0.0
    elif loss == SQUARED:
        out[0] = score[0] - label
    elif loss == POISSON:
        out[0] = _exp(min(score[0], LARGEST_LOG)) - label
    elif loss >= QUANTILE:
        level = (loss - QUANTILE) / LEVELS
        out[0] = 1.0 - level if score[0] > label else -level
    else:
        highest = score[0]
        for k in range(1, len(score)):
            highest = max(highest, score[k])
        total = 0.0
        for k in range(len(score)):
            out[k] = _exp(score[k] - highest)
            total += out[k]
        for k in range(len(score)):
            out[k] /= total
        out[int(label)] -= 1.0


@exact_kernel
def scores_of(theta: Values, units: int, totals: Values, out: Values) -> None:
    """Write the scores of all rows to `out`."""
    hidden = np.empty(units)
    for row in range(len(totals)):
        _forward(theta, totals[row], hidden, out[row])


@exact_kernel
def gradients_of(theta: Values, units: int, totals: Values, of_score: Values, out: Values) -> None:
    """Write dLoss/dtotal to `out`:  g,  and  W1^T (W2^T g where the hidden unit is positive, else 0)."""
    scores = of_score.shape[1]
    vector = totals.shape[1] - scores
    last_at = units * (vector + 1)
    hidden, score = np.empty(units), np.empty(scores)
    for row in range(len(totals)):
        _forward(theta, totals[row], hidden, score)
        out[row, :scores] = of_score[row]
        out[row, scores:] = 0.0
        for u in range(units):
            if hidden[u] > 0.0:
                error = 0.0
                for k in range(scores):
                    error += theta[last_at + k * units + u] * of_score[row, k]
                for i in range(vector):
                    out[row, scores + i] += theta[u * vector + i] * error


@exact_kernel
def train(
    state: HeadState,
    units: int,
    l2: float,
    totals: Values,
    labels: Values,
    weights: Values,
    loss: int,
    scores: int,
    order: NDArray[np.int64],
    batch_bounds: NDArray[np.int64],
    rates: Values,
) -> None:
    """One pass of Adam over the totals of a block, batch by batch; L2 shrinks weights, not biases."""
    theta = state.theta
    vector = totals.shape[1] - scores
    bias_at, last_at = units * vector, units * (vector + 1)
    hidden, score, gradient = np.empty(units), np.empty(scores), np.empty(scores)
    pull = np.empty_like(theta)
    for batch in range(len(rates)):
        begin, end = batch_bounds[batch], batch_bounds[batch + 1]
        for at in range(len(theta)):
            pull[at] = 0.0 if bias_at <= at < last_at else l2 * theta[at]
        for place in range(begin, end):
            row = order[place]
            _forward(theta, totals[row], hidden, score)
            _loss_gradient(loss, score, labels[row], gradient)
            share = weights[row] / (end - begin)
            for u in range(units):
                if hidden[u] > 0.0:
                    error = 0.0
                    for k in range(scores):
                        error += theta[last_at + k * units + u] * gradient[k]
                        pull[last_at + k * units + u] += share * gradient[k] * hidden[u]
                    pull[bias_at + u] += share * error
                    for i in range(vector):
                        pull[u * vector + i] += share * error * totals[row, scores + i]
        state.powers[0] *= _BETA1
        state.powers[1] *= _BETA2
        for at in range(len(theta)):
            state.first[at] = _BETA1 * state.first[at] + (1.0 - _BETA1) * pull[at]
            state.second[at] = _BETA2 * state.second[at] + (1.0 - _BETA2) * pull[at] * pull[at]
            step = state.first[at] / (1.0 - state.powers[0])
            theta[at] -= rates[batch] * step / (math.sqrt(state.second[at] / (1.0 - state.powers[1])) + _EPSILON)
