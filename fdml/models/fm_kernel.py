"""CompiledModel passes of the factorization machine.

theta holds, feature by feature and output by output, a weight and `factors`
factors (so an entry of a row touches one stretch of memory), then the biases.
The prediction is  bias + sum w x + 1/2 sum_f ((sum v x)^2 - sum (v x)^2).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fdml.models.kernels import (
    SGD,
    BlockUpdate,
    Floats,
    OptimizerState,
    UpdateRule,
    begin_update,
    end_update,
    entries,
    entry,
    kernel,
    row_gradient,
)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _predict_row(
    rows: Any, row: int, theta: Floats, decayed: int, scale: float, sums: Floats, squares: Floats, own: Floats
) -> None:
    """Write the prediction to `own` and sum v x (without the scale) to `sums`, both per output."""
    outputs, factors = sums.shape
    kind = theta.dtype.type
    sums[:] = 0.0
    squares[:] = 0.0
    own[:] = 0.0
    for place in entries(rows, row):
        feature, value = entry(rows, row, place)
        for k in range(outputs):
            base = (feature * np.uint64(outputs) + np.uint64(k)) * np.uint64(factors + 1)
            own[k] += value * theta[base]
            for f in range(factors):
                product = value * theta[base + np.uint64(1 + f)]
                sums[k, f] += product
                squares[k, f] += product * product
    for k in range(outputs):
        pairs = kind(0.0)
        for f in range(factors):
            pairs += sums[k, f] * sums[k, f] - squares[k, f]
        own[k] = scale * own[k] + 0.5 * scale * scale * pairs
        if len(theta) > decayed:
            own[k] += theta[decayed + k]


@kernel
def predict(rows: Any, start: int, recipe: UpdateRule, memory: OptimizerState, factors: int, out: Floats) -> None:
    """Write the predictions of the rows from `start` on to `out`."""
    sums = np.empty((out.shape[1], factors), out.dtype)
    squares = np.empty_like(sums)
    for row in range(len(out)):
        _predict_row(rows, start + row, memory.theta, recipe.decayed, memory.counters[0], sums, squares, out[row])


@kernel
def train(
    rows: Any, update: BlockUpdate, recipe: UpdateRule, memory: OptimizerState, factors: int, pull: Floats
) -> None:
    """One pass over one block, batch by batch.

    A factor's gradient is sum_i g x (sum v x) - v sum_i g x^2. `pull` collects the
    second sum, one cell per feature and output, all zero before and after the call:
    so every factor is read as it was when the batch began.
    """
    theta, decayed = memory.theta, recipe.decayed
    kind = theta.dtype.type
    direct = recipe.rule == SGD
    target = theta if direct else memory.gradient
    outputs = update.scores.shape[1]
    wide, stride = np.uint64(outputs), np.uint64(factors + 1)
    own, score = np.empty(outputs, theta.dtype), np.empty(outputs, theta.dtype)
    gradients = np.empty((update.batch_bounds[1], outputs), theta.dtype)
    sums = np.empty((update.batch_bounds[1], outputs, factors), theta.dtype)
    squares = np.empty((outputs, factors), theta.dtype)
    for batch in range(len(update.rates)):
        begin, end = update.batch_bounds[batch], update.batch_bounds[batch + 1]
        scale = memory.counters[0]
        for place in range(begin, end):
            row, seat = update.order[place], place - begin
            _predict_row(rows, update.start + row, theta, decayed, scale, sums[seat], squares, own)
            row_gradient(update, row, end - begin, own, score, gradients[seat])
            for where in entries(rows, update.start + row):
                feature, value = entry(rows, update.start + row, where)
                for k in range(outputs):
                    pull[feature * wide + np.uint64(k)] += gradients[seat, k] * value * value
        rate = update.rates[batch]
        weight_factor, bias_factor = begin_update(recipe, memory, rate)
        # What theta must be multiplied by to give the factors as they were when the batch began.
        held = memory.counters[0] / (1.0 - rate * recipe.l2) if direct else 1.0
        for place in range(begin, end):
            row, seat = update.start + update.order[place], place - begin
            for where in entries(rows, row):
                feature, value = entry(rows, row, where)
                for k in range(outputs):
                    cell = feature * wide + np.uint64(k)
                    base = cell * stride
                    amount = kind(weight_factor * gradients[seat, k]) * value
                    if pull[cell] != 0.0:
                        drawn = kind(weight_factor * held) * pull[cell]
                        for f in range(factors):
                            target[base + np.uint64(1 + f)] -= drawn * theta[base + np.uint64(1 + f)]
                        pull[cell] = 0.0
                    target[base] += amount
                    for f in range(factors):
                        target[base + np.uint64(1 + f)] += amount * kind(scale) * sums[seat, k, f]
            if len(theta) > decayed:
                for k in range(outputs):
                    target[decayed + k] += kind(bias_factor) * gradients[seat, k]
        end_update(recipe, memory, rate)
