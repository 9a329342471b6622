"""CompiledModel passes of the linear model: theta is weights `(width, outputs)`, then the biases."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from fdml.models.kernels import (
    SGD,
    BlockUpdate,
    Floats,
    OptimizerState,
    UpdateRule,
    begin_update,
    clip_factor,
    end_update,
    entries,
    entry,
    kernel,
    loss_gradient,
    loss_gradients,
    prefetch,
    prefetch_line,
    square_norm,
)

_AHEAD, _ROWS_AHEAD = 6, 96
"""How many rows ahead of its use a row is fetched to the cache, and what a update says of it."""


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
    outputs = out.shape[1]
    for place in range(begin, end):
        row, seat = start + place, place - begin
        if order is not None:
            row = start + order[place]
            if place + _AHEAD < len(order):
                prefetch(rows, start + order[place + _AHEAD])
        if outputs == 1:
            total = theta.dtype.type(0.0)
            for where in entries(rows, row):
                feature, value = entry(rows, row, where)
                total += value * theta[feature]
            out[seat, 0] = total
        else:
            out[seat] = 0.0
            for where in entries(rows, row):
                feature, value = entry(rows, row, where)
                for k in range(outputs):
                    out[seat, k] += value * theta[feature * np.uint64(outputs) + np.uint64(k)]
        for k in range(outputs):
            out[seat, k] *= scale
            if len(theta) > decayed:
                out[seat, k] += theta[decayed + k]


@kernel
def predict(rows: Any, start: int, recipe: UpdateRule, memory: OptimizerState, out: Floats) -> None:
    """Write the predictions of the rows from `start` on to `out`."""
    _predict_rows(rows, start, None, 0, len(out), memory.theta, recipe.decayed, memory.counters[0], out)


@kernel
def _clip_rows(
    rows: Any, start: int, order: NDArray[np.int64], limit: float, biased: bool, gradients: Floats
) -> NDArray[np.bool_]:
    """Shorten the gradient that each row has in all parameters to `limit`; says which rows may be learned from."""
    kept = np.empty(len(order), np.bool_)
    for seat in range(len(order)):
        inputs, square = square_norm(rows, start + order[seat]), 0.0
        for k in range(gradients.shape[1]):
            square += np.float64(gradients[seat, k]) * np.float64(gradients[seat, k])
        factor = clip_factor(inputs, square * (inputs + (1.0 if biased else 0.0)), limit)
        kept[seat] = factor > 0.0
        if factor < 1.0:
            for k in range(gradients.shape[1]):
                gradients[seat, k] = np.float64(gradients[seat, k]) * factor
    return kept


@kernel
def train(rows: Any, update: BlockUpdate, recipe: UpdateRule, memory: OptimizerState, clip: float | None) -> None:
    """One pass over one block, batch by batch; `clip` bounds each row's part in the sum of a batch's gradients.

    Without a clip (None) numba leaves out all that is said about it here.
    """
    theta, decayed = memory.theta, recipe.decayed
    kind = theta.dtype.type
    target = theta if recipe.rule == SGD else memory.gradient
    outputs = update.scores.shape[1]
    gradients = np.empty((update.batch_bounds[1], outputs), theta.dtype)
    scores = gradients.reshape(-1)
    score, gradient = np.empty(outputs, theta.dtype), np.empty(outputs, theta.dtype)
    labels, shares = np.empty(update.batch_bounds[1], theta.dtype), np.empty(update.batch_bounds[1], theta.dtype)
    powers = np.empty(update.batch_bounds[1], np.int32)
    for batch in range(len(update.rates)):
        begin, end = update.batch_bounds[batch], update.batch_bounds[batch + 1]
        _predict_rows(rows, update.start, update.order, begin, end, theta, decayed, memory.counters[0], gradients)
        size, part, echo = end - begin, kind(1.0 / (end - begin)), kind(update.echo)
        for place in range(begin + _ROWS_AHEAD, min(end + _ROWS_AHEAD, len(update.order))):
            _prefetch_update(update, update.order[place])
        # Both ways are written out here, as handing the update to a function for every row took half of the time.
        if outputs == 1:
            for seat in range(size):
                row = update.order[begin + seat]
                scores[seat] = update.scores[row, 0] + echo * (scores[seat] - update.own_at_push[row, 0])
                labels[seat], shares[seat] = update.labels[row], kind(update.weights[row]) * part
            loss_gradients(update.loss, scores[:size], labels[:size], shares[:size], powers[:size])
        else:
            for seat in range(size):
                row = update.order[begin + seat]
                for k in range(outputs):
                    score[k] = update.scores[row, k] + echo * (gradients[seat, k] - update.own_at_push[row, k])
                loss_gradient(update.loss, score, update.labels[row], gradient)
                for k in range(outputs):
                    gradients[seat, k] = gradient[k] * (kind(update.weights[row]) * part)
        if clip is not None:
            batch_order, limit = update.order[begin:end], clip / (end - begin)
            kept = _clip_rows(rows, update.start, batch_order, limit, len(theta) > decayed, gradients)
        rate = update.rates[batch]
        weight_factor, bias_factor = begin_update(recipe, memory, rate)
        if len(theta) > decayed:
            for k in range(outputs):
                pull = kind(0.0)
                for seat in range(end - begin):
                    if clip is None or kept[seat]:
                        pull += gradients[seat, k]
                target[decayed + k] += kind(bias_factor) * pull
        for place in range(begin, end):
            row, seat = update.start + update.order[place], place - begin
            if clip is not None and not kept[seat]:
                continue
            if outputs == 1:
                amount = kind(weight_factor * gradients[seat, 0])
                for where in entries(rows, row):
                    feature, value = entry(rows, row, where)
                    target[feature] += value * amount
            else:
                for where in entries(rows, row):
                    feature, value = entry(rows, row, where)
                    for k in range(outputs):
                        cell = feature * np.uint64(outputs) + np.uint64(k)
                        target[cell] += value * kind(weight_factor) * gradients[seat, k]
        end_update(recipe, memory, rate)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _prefetch_update(update: BlockUpdate, row: int) -> None:
    """Have fetched what the update says of a row."""
    outputs = update.scores.shape[1]
    prefetch_line(update.scores, row * outputs)  # type: ignore[call-arg]
    prefetch_line(update.own_at_push, row * outputs)
    prefetch_line(update.labels, row)
    prefetch_line(update.weights, row)
