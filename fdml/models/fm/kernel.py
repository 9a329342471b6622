"""Compiled passes of the factorization machine.

theta holds, feature by feature and float by float of the prediction, a weight and `factors`
factors (so an entry of a row touches one stretch of memory), then the biases.
The prediction is  bias + sum w x + 1/2 sum_f ((sum v x)^2 - sum (v x)^2).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fdml.models.kernels.compiler import kernel
from fdml.models.kernels.gradients import KernelScores, row_gradient
from fdml.models.kernels.optimizers import SGD, OptimizerState, UpdateRule, begin_update, end_update
from fdml.models.kernels.rows import entries, entry
from fdml.models.losses import Floats
from fdml.models.signals import BlockUpdate


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _predict_row(
    rows: Any, row: int, theta: Floats, decayed: int, scale: float, sums: Floats, squares: Floats, own: Floats
) -> None:
    """Write the prediction to `own` and sum v x (without the scale) to `sums`, for each float of it."""
    width, factors = sums.shape
    kind = theta.dtype.type
    sums[:] = 0.0
    squares[:] = 0.0
    own[:] = 0.0
    # p = bias + sum_j w_j x_j + 1/2 sum_f ((sum_j v_jf x_j)^2 - sum_j (v_jf x_j)^2), w and v being scale * theta
    for place in entries(rows, row):
        feature, value = entry(rows, row, place)
        for k in range(width):
            base = (feature * np.uint64(width) + np.uint64(k)) * np.uint64(factors + 1)
            own[k] += value * theta[base]
            for f in range(factors):
                product = value * theta[base + np.uint64(1 + f)]
                sums[k, f] += product
                squares[k, f] += product * product
    for k in range(width):
        pairs = kind(0.0)
        for f in range(factors):
            pairs += sums[k, f] * sums[k, f] - squares[k, f]
        own[k] = scale * own[k] + 0.5 * scale * scale * pairs
        if len(theta) > decayed:
            own[k] += theta[decayed + k]


@kernel
def predict(rows: Any, start: int, rule: UpdateRule, state: OptimizerState, factors: int, out: Floats) -> None:
    """Write the predictions of the rows from `start` on to `out`."""
    sums = np.empty((out.shape[1], factors), out.dtype)
    squares = np.empty_like(sums)
    for row in range(len(out)):
        _predict_row(rows, start + row, state.theta, rule.decayed, state.counters[0], sums, squares, out[row])


@kernel
def train(
    rows: Any,
    block: BlockUpdate,
    scores: KernelScores,
    rule: UpdateRule,
    state: OptimizerState,
    factors: int,
    pull: Floats,
) -> None:
    """One pass over one block, batch by batch.

    A factor's gradient is sum_i g x (sum v x) - v sum_i g x^2. `pull` collects the second sum, by feature and float of
    the prediction, so that every factor is read as it was when the batch began. It is zero before and after the call.
    """
    theta, decayed = state.theta, rule.decayed
    kind = theta.dtype.type
    direct = rule.optimizer == SGD
    target = theta if direct else state.gradient
    width = scores.total.shape[1]
    wide, stride = np.uint64(width), np.uint64(factors + 1)
    own, score = np.empty(width, theta.dtype), np.empty(width, theta.dtype)
    gradients = np.empty((block.batch_bounds[1], width), theta.dtype)
    sums = np.empty((block.batch_bounds[1], width, factors), theta.dtype)
    squares = np.empty((width, factors), theta.dtype)
    for batch in range(len(block.rates)):
        begin, end = block.batch_bounds[batch], block.batch_bounds[batch + 1]
        scale = state.counters[0]
        # g_i = dLoss/dp_i weight_i / size, and for every feature j:  pull_j = sum_i g_i x_ij^2
        for place in range(begin, end):
            row, slot = block.order[place], place - begin
            _predict_row(rows, block.start + row, theta, decayed, scale, sums[slot], squares, own)
            row_gradient(scores, row, end - begin, own, score, gradients[slot])
            for where in entries(rows, block.start + row):
                feature, value = entry(rows, block.start + row, where)
                for k in range(width):
                    pull[feature * wide + np.uint64(k)] += gradients[slot, k] * value * value
        rate = block.rates[batch]
        weight_factor, bias_factor = begin_update(rule, state, rate)
        held = state.counters[0] / (1.0 - rate * rule.l2) if direct else 1.0  # times theta: as the batch began
        # dLoss/dw_j = sum_i g_i x_ij;  dLoss/dv_jf = sum_i g_i x_ij (sum_l v_lf x_il) - v_jf pull_j
        for place in range(begin, end):
            row, slot = block.start + block.order[place], place - begin
            for where in entries(rows, row):
                feature, value = entry(rows, row, where)
                for k in range(width):
                    cell = feature * wide + np.uint64(k)
                    base = cell * stride
                    amount = kind(weight_factor * gradients[slot, k]) * value
                    if pull[cell] != 0.0:
                        drawn = kind(weight_factor * held) * pull[cell]
                        for f in range(factors):
                            target[base + np.uint64(1 + f)] -= drawn * theta[base + np.uint64(1 + f)]
                        pull[cell] = 0.0
                    target[base] += amount
                    for f in range(factors):
                        target[base + np.uint64(1 + f)] += amount * kind(scale) * sums[slot, k, f]
            if len(theta) > decayed:
                for k in range(width):
                    target[decayed + k] += kind(bias_factor) * gradients[slot, k]
        end_update(rule, state, rate)
