"""Compiled passes of a factorization machine whose sums of factors are outputs, too.

theta holds, feature by feature and score by score, a weight w and k factors v, then the biases. The outputs are, for
each score,  p = bias + sum w x + 1/2 sum_f ((sum v_f x)^2 - sum (v_f x)^2)  and then, for each score, u_f = sum v_f x.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fdml.models.kernels.compiler import kernel
from fdml.models.kernels.gradients import InteractionScores, KernelScores, row_gradient
from fdml.models.kernels.optimizers import SGD, OptimizerState, UpdateRule, begin_update, end_update
from fdml.models.kernels.rows import entries, entry, prefetch
from fdml.models.losses import Floats
from fdml.models.signals import BlockUpdate

_AHEAD = 6
"""How many rows ahead of its use a row is loaded to the cache."""


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _predict_row(
    rows: Any, row: int, theta: Floats, decayed: int, scale: float, factors: int, squares: Floats, own: Floats
) -> None:
    """Write the outputs of a row to `own`; `squares` is scratch, one for each score."""
    outputs = len(squares)
    kind = theta.dtype.type
    own[:] = 0.0
    squares[:] = 0.0
    for place in entries(rows, row):
        feature, value = entry(rows, row, place)
        for k in range(outputs):
            base = (feature * np.uint64(outputs) + np.uint64(k)) * np.uint64(factors + 1)
            own[k] += value * theta[base]
            sums = own[outputs + k * factors : outputs + (k + 1) * factors]
            cells = theta[base + np.uint64(1) : base + np.uint64(1 + factors)]
            square = kind(0.0)
            for f in range(factors):
                product = value * cells[f]
                sums[f] += product
                square += product * product
            squares[k] += square
    for k in range(outputs):
        pairs = -kind(scale * scale) * squares[k]
        for f in range(outputs + k * factors, outputs + (k + 1) * factors):
            own[f] *= kind(scale)
            pairs += own[f] * own[f]
        own[k] = kind(scale) * own[k] + kind(0.5) * pairs
        if len(theta) > decayed:
            own[k] += theta[decayed + k]


@kernel
def predict(rows: Any, start: int, rule: UpdateRule, state: OptimizerState, factors: int, out: Floats) -> None:
    """Write the outputs of the rows from `start` on to `out`."""
    squares = np.empty(out.shape[1] // (1 + factors), out.dtype)
    for row in range(len(out)):
        _predict_row(rows, start + row, state.theta, rule.decayed, state.counters[0], factors, squares, out[row])


@kernel
def train(
    rows: Any,
    block: BlockUpdate,
    scores: KernelScores | InteractionScores,
    rule: UpdateRule,
    state: OptimizerState,
    factors: int,
    pull: Floats,
) -> None:
    """One pass over one block, batch by batch.

    With g = dLoss/dp and h = dLoss/du, of each row:  dLoss/dw_j = sum g x_j  and
    dLoss/dv_jf = sum x_j (g u_f + h_f) - v_jf sum g x_j^2. `pull` collects the last sum, by feature and score, so that
    every factor is read as it was when the batch began. It is zero before and after the call.
    """
    theta, decayed = state.theta, rule.decayed
    kind = theta.dtype.type
    direct = rule.optimizer == SGD
    target = theta if direct else state.gradient
    width = scores.total.shape[1]
    outputs = width // (1 + factors)
    wide, stride = np.uint64(outputs), np.uint64(factors + 1)
    score, squares = np.empty(width, theta.dtype), np.empty(outputs, theta.dtype)
    gradients = np.empty((block.batch_bounds[1], width), theta.dtype)
    own = np.empty_like(gradients)
    for batch in range(len(block.rates)):
        begin, end = block.batch_bounds[batch], block.batch_bounds[batch + 1]
        scale = state.counters[0]
        for place in range(begin, end):
            row, slot = block.order[place], place - begin
            if place + _AHEAD < len(block.order):
                prefetch(rows, block.start + block.order[place + _AHEAD])
            _predict_row(rows, block.start + row, theta, decayed, scale, factors, squares, own[slot])
            row_gradient(scores, row, end - begin, own[slot], score, gradients[slot])
            for where in entries(rows, block.start + row):
                feature, value = entry(rows, block.start + row, where)
                for k in range(outputs):
                    pull[feature * wide + np.uint64(k)] += gradients[slot, k] * value * value
            # what a factor's weight is for each x:  g u + h
            for k in range(outputs):
                for f in range(outputs + k * factors, outputs + (k + 1) * factors):
                    gradients[slot, f] += gradients[slot, k] * own[slot, f]
        rate = block.rates[batch]
        weight_factor, bias_factor = begin_update(rule, state, rate)
        held = state.counters[0] / (1.0 - rate * rule.l2) if direct else 1.0  # times theta: as the batch began
        for place in range(begin, end):
            row, slot = block.start + block.order[place], place - begin
            for where in entries(rows, row):
                feature, value = entry(rows, row, where)
                amount = kind(weight_factor) * value
                for k in range(outputs):
                    cell = feature * wide + np.uint64(k)
                    base = cell * stride
                    cells = target[base + np.uint64(1) : base + stride]
                    if pull[cell] != 0.0:
                        drawn = kind(weight_factor * held) * pull[cell]
                        for f in range(factors):
                            cells[f] -= drawn * theta[base + np.uint64(1 + f)]
                        pull[cell] = 0.0
                    target[base] += amount * gradients[slot, k]
                    for f in range(factors):
                        cells[f] += amount * gradients[slot, outputs + k * factors + f]
            if len(theta) > decayed:
                for k in range(outputs):
                    target[decayed + k] += kind(bias_factor) * gradients[slot, k]
        end_update(rule, state, rate)
