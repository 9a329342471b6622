"""Compiled passes of the linear model.

theta holds the weights `(inputs, width)`, then the biases. The prediction is
p_k = bias_k + sum_j x_j w_jk.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from fdml.models.kernels.compiler import kernel
from fdml.models.kernels.gradients import KernelScores, clip_factor, loss_gradient, loss_gradients
from fdml.models.kernels.optimizers import OptimizerState, UpdateRule, begin_update, end_update, gradient_target
from fdml.models.kernels.rows import entries, entry, prefetch, prefetch_line, square_norm
from fdml.models.losses import Floats
from fdml.models.signals import BlockUpdate

_AHEAD, _ROWS_AHEAD = 6, 96
"""How many rows ahead of its use a row is loaded to the cache, and its entries of the scores."""


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _predict_rows(
    rows: Any,
    start: int,
    order: NDArray[np.int64] | None,
    begin: int,
    end: int,
    theta: Floats,
    decayed: int,
    scale: float,
    out: Floats,
) -> None:
    """Write the predictions of the rows order[begin:end], counted from `start`, to `out`; None for the order they have.

    A function of one row would cost as much in being called as in its work.
    """
    width = out.shape[1]
    for place in range(begin, end):
        row, slot = start + place, place - begin
        if order is not None:
            row = start + order[place]
            if place + _AHEAD < len(order):
                prefetch(rows, start + order[place + _AHEAD])
        if width == 1:
            total = theta.dtype.type(0.0)
            for where in entries(rows, row):
                feature, value = entry(rows, row, where)
                total += value * theta[feature]
            out[slot, 0] = total
        else:
            out[slot] = 0.0
            for where in entries(rows, row):
                feature, value = entry(rows, row, where)
                for k in range(width):
                    out[slot, k] += value * theta[feature * np.uint64(width) + np.uint64(k)]
        for k in range(width):
            out[slot, k] *= scale
            if len(theta) > decayed:
                out[slot, k] += theta[decayed + k]


@kernel
def predict(rows: Any, start: int, rule: UpdateRule, state: OptimizerState, out: Floats) -> None:
    """Write the predictions of the rows from `start` on to `out`."""
    _predict_rows(rows, start, None, 0, len(out), state.theta, rule.decayed, state.counters[0], out)


@kernel
def _clip_rows(
    rows: Any, start: int, order: NDArray[np.int64], limit: float, biased: bool, gradients: Floats
) -> NDArray[np.bool_]:
    """Clip the gradient that each row has in all parameters to length `limit`; returns which rows to learn from.

    Of row i it is |g_i| sqrt(|x_i|^2 + 1), without the 1 where there is no bias.
    """
    kept = np.empty(len(order), np.bool_)
    for slot in range(len(order)):
        inputs, square = square_norm(rows, start + order[slot]), 0.0
        for k in range(gradients.shape[1]):
            square += np.float64(gradients[slot, k]) * np.float64(gradients[slot, k])
        factor = clip_factor(inputs, square * (inputs + (1.0 if biased else 0.0)), limit)
        kept[slot] = factor > 0.0
        if factor < 1.0:
            for k in range(gradients.shape[1]):
                gradients[slot, k] = np.float64(gradients[slot, k]) * factor
    return kept


@kernel
def train(
    rows: Any,
    block: BlockUpdate,
    scores: KernelScores,
    rule: UpdateRule,
    state: OptimizerState,
    clip: float | None,
) -> None:
    """One pass over one block, batch by batch; `clip` bounds each row's part in the sum of a batch's gradients.

    With a clip gradients are only collected. Without one (None) numba leaves clipping out of the compiled code.
    """
    theta, decayed = state.theta, rule.decayed
    kind = theta.dtype.type
    target = gradient_target(rule, state, clip)
    width = scores.total.shape[1]
    gradients = np.empty((block.batch_bounds[1], width), theta.dtype)
    flat = gradients.reshape(-1)
    score, gradient = np.empty(width, theta.dtype), np.empty(width, theta.dtype)
    labels, shares = np.empty(block.batch_bounds[1], theta.dtype), np.empty(block.batch_bounds[1], theta.dtype)
    powers = np.empty(block.batch_bounds[1], np.int32)
    for batch in range(len(block.rates)):
        begin, end = block.batch_bounds[batch], block.batch_bounds[batch + 1]
        _predict_rows(rows, block.start, block.order, begin, end, theta, decayed, state.counters[0], gradients)
        size, part, echo = end - begin, kind(1.0 / (end - begin)), kind(scores.echo)
        for place in range(begin + _ROWS_AHEAD, min(end + _ROWS_AHEAD, len(block.order))):
            _prefetch_scores(scores, block.order[place])
        # score_i = total_i + echo (p_i - own_at_push_i);  g_i = dLoss/dscore_i weight_i / size
        # Both ways are written out here, as handing the scores to a function for every row took half of the time.
        if width == 1:
            for slot in range(size):
                row = block.order[begin + slot]
                flat[slot] = scores.total[row, 0] + echo * (flat[slot] - scores.own_at_push[row, 0])
                labels[slot], shares[slot] = scores.labels[row], kind(scores.weights[row]) * part
            loss_gradients(scores.loss, flat[:size], labels[:size], shares[:size], powers[:size])
        else:
            for slot in range(size):
                row = block.order[begin + slot]
                for k in range(width):
                    score[k] = scores.total[row, k] + echo * (gradients[slot, k] - scores.own_at_push[row, k])
                loss_gradient(scores.loss, score, scores.labels[row], gradient)
                for k in range(width):
                    gradients[slot, k] = gradient[k] * (kind(scores.weights[row]) * part)
        if clip is not None:
            batch_order, limit = block.order[begin:end], clip / (end - begin)
            kept = _clip_rows(rows, block.start, batch_order, limit, len(theta) > decayed, gradients)
        rate = block.rates[batch]
        weight_factor, bias_factor = begin_update(rule, state, rate)
        # dLoss/dbias_k = sum_i g_ik
        if len(theta) > decayed:
            for k in range(width):
                pull = target.dtype.type(0.0)
                for slot in range(end - begin):
                    if clip is None or kept[slot]:
                        pull += gradients[slot, k]
                target[decayed + k] += kind(bias_factor) * pull
        # dLoss/dw_jk = sum_i g_ik x_ij, added row by row
        for place in range(begin, end):
            row, slot = block.start + block.order[place], place - begin
            if clip is not None and not kept[slot]:
                continue
            if width == 1:
                amount = kind(weight_factor * gradients[slot, 0])
                for where in entries(rows, row):
                    feature, value = entry(rows, row, where)
                    target[feature] += value * amount
            else:
                for where in entries(rows, row):
                    feature, value = entry(rows, row, where)
                    for k in range(width):
                        cell = feature * np.uint64(width) + np.uint64(k)
                        target[cell] += value * kind(weight_factor) * gradients[slot, k]
        end_update(rule, state, rate)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _prefetch_scores(scores: KernelScores, row: int) -> None:
    """Have all that the scores say of a row loaded to the cache."""
    width = scores.total.shape[1]
    prefetch_line(scores.total, row * width)  # type: ignore[call-arg]
    prefetch_line(scores.own_at_push, row * width)
    prefetch_line(scores.labels, row)
    prefetch_line(scores.weights, row)
