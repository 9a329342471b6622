"""Compiled passes of the multi-layer perceptron with ReLU units.

theta holds the weights of all layers, then their biases; the last layer has
none where the model has no bias. The first layer's weights are `(features, units)`,
as rows are sparse there; later ones are `(units, inputs)`. So every inner loop
runs along memory. `sizes` are the units of each layer; those of the last are the
prediction. With h_0 = x:  h_l = relu(W_l h_l-1 + b_l), and the last layer without relu.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from fdml.models.kernels.compiler import kernel
from fdml.models.kernels.factored import finish_table, new_table, update_table
from fdml.models.kernels.gradients import InteractionScores, KernelScores, clip_factor, output_gradient
from fdml.models.kernels.optimizers import (
    ADAM,
    SGD,
    OptimizerState,
    UpdateRule,
    begin_update,
    end_update,
    gradient_target,
)
from fdml.models.kernels.rows import LINE, entries, entry, prefetch, prefetch_line, square_norm
from fdml.models.kernels.units import Sizes, finish, mixed, predict_dropped, scale_errors, weigh
from fdml.models.losses import Floats
from fdml.models.signals import BlockUpdate

_ROWS_AHEAD, _WEIGHTS_AHEAD = 6, 2
"""How many rows ahead of its use a row is loaded to the cache, and then the weights of its features."""


def _prefetch_weights(rows: Any, row: int, theta: Floats, size: int) -> None:
    """Have the weights of a row's features loaded to the cache; all of them together are larger than a core's cache.

    Those of a dense row are one long stretch, which the processor fetches by itself.
    """
    raise NotImplementedError


@overload(_prefetch_weights, inline="always", strict=False)
def _prefetch_weights_overload(rows: Any, row: int, theta: Any, size: int) -> Any:  # noqa: ARG001 (numba goes by the names)
    if "indptr" not in rows.fields:
        return lambda rows, row, theta, size: None  # noqa: ARG005

    def prefetch_of_entries(rows: Any, row: int, theta: Any, size: int) -> None:
        for place in range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + 1])):
            base = np.uint64(np.uint32(rows.indices[place])) * np.uint64(size)
            for unit in range(np.uint64(0), np.uint64(size), np.uint64(LINE)):
                prefetch_line(theta, base + unit)  # type: ignore[call-arg]

    return prefetch_of_entries


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _predict_row(
    rows: Any, row: int, theta: Floats, decayed: int, scale: float, sizes: Sizes, features: int, units: Floats
) -> None:
    """Write the units of all layers, one after the other, to `units`; the last are the prediction."""
    kind = theta.dtype.type
    size = sizes[0]
    layer = units[:size]
    layer[:] = 0.0
    for place in entries(rows, row):
        feature, value = entry(rows, row, place)
        base = feature * np.uint64(size)
        weights = theta[base : base + np.uint64(size)]
        for u in range(size):
            layer[u] += value * weights[u]
    weight_at, bias_at, unit_at = features * size, decayed, 0
    finish(layer, theta, bias_at, kind(scale), len(sizes) > 1)
    bias_at += size
    for depth in range(1, len(sizes)):
        below = units[unit_at : unit_at + size]
        unit_at += size
        above = units[unit_at : unit_at + sizes[depth]]
        weigh(below, theta[weight_at : weight_at + size * sizes[depth]], above)
        weight_at += size * sizes[depth]
        size = sizes[depth]
        finish(above, theta, bias_at, kind(scale), depth < len(sizes) - 1)
        bias_at += size


@kernel
def predict(
    rows: Any, start: int, rule: UpdateRule, state: OptimizerState, sizes: Sizes, features: int, out: Floats
) -> None:
    """Write the predictions of the rows from `start` on to `out`."""
    units = np.empty(sizes.sum(), state.theta.dtype)
    for row in range(len(out)):
        if row + _WEIGHTS_AHEAD < len(out):
            _prefetch_weights(rows, start + row + _WEIGHTS_AHEAD, state.theta, sizes[0])
        _predict_row(rows, start + row, state.theta, rule.decayed, state.counters[0], sizes, features, units)
        out[row] = units[len(units) - sizes[-1] :]


@kernel
def _propagate_back(
    theta: Floats, decayed: int, scale: float, sizes: Sizes, dropout: float | None, units: Floats, errors: Floats
) -> None:
    """From the gradient of the prediction (the end of each row of `errors`) fill in those of all hidden units."""
    kind = theta.dtype.type
    weight_at, unit_at = decayed, units.shape[1]
    for depth in range(len(sizes) - 1, 0, -1):
        above, below = sizes[depth], sizes[depth - 1]
        weight_at -= above * below
        unit_at -= above
        # e_l-1 = (W_l^T e_l) where h_l-1 > 0, else 0
        for row in range(len(units)):
            error_below = errors[row, unit_at - below : unit_at]
            error_below[:] = 0.0
            for v in range(above):
                error = kind(scale) * errors[row, unit_at + v]
                weights = theta[weight_at + v * below : weight_at + (v + 1) * below]
                for u in range(below):
                    error_below[u] += error * weights[u]
            for u in range(below):
                if units[row, unit_at - below + u] <= 0.0:
                    error_below[u] = 0.0
    if dropout is not None:
        scale_errors(dropout, sizes, errors)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _square(values: Floats) -> float:
    total = 0.0
    for value in values:
        total += np.float64(value) * np.float64(value)
    return total


@kernel
def _clip_rows(
    rows: Any,
    start: int,
    order: NDArray[np.int64],
    limit: float,
    sizes: Sizes,
    biases: int,
    units: Floats,
    errors: Floats,
) -> NDArray[np.bool_]:
    """Clip the gradient that each row has in all parameters to length `limit`; returns which rows to learn from.

    A layer's gradient is the outer product of its errors and its inputs, so its length is the product of theirs.
    """
    kept = np.empty(len(order), np.bool_)
    for slot in range(len(order)):
        inputs, longest, square, unit_at = square_norm(rows, start + order[slot]), 0.0, 0.0, 0
        for depth in range(len(sizes)):
            above = unit_at + sizes[depth]
            longest = max(longest, inputs)
            square += _square(errors[slot, unit_at:above]) * (inputs + (1.0 if unit_at < biases else 0.0))
            inputs = _square(units[slot, unit_at:above])
            unit_at = above
        factor = clip_factor(longest, square, limit)
        kept[slot] = factor > 0.0
        if factor < 1.0:
            for u in range(errors.shape[1]):
                errors[slot, u] = np.float64(errors[slot, u]) * factor
    return kept


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _scale(values: Floats, share: float, out: Floats) -> None:
    for k in range(len(values)):
        out[k] = values[k] * share


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _add_first_layer(rows: Any, row: int, factor: float, error: Floats, target: Floats) -> None:
    """Add a row's part of dLoss/dW_1, the products of its entries and errors, times the factor."""
    size = len(error)
    for where in entries(rows, row):
        feature, value = entry(rows, row, where)
        amount = factor * value
        base = feature * np.uint64(size)
        cells = target[base : base + np.uint64(size)]
        for u in range(size):
            cells[u] += amount * error[u]


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _add_later_layers(
    factor: float, sizes: Sizes, weight_at: int, units: Floats, errors: Floats, target: Floats
) -> None:
    """Add a row's part of dLoss/dW_l of all layers but the first, whose weights begin at `weight_at`."""
    unit_at = 0
    for depth in range(1, len(sizes)):
        above, below = sizes[depth], sizes[depth - 1]
        inputs = units[unit_at : unit_at + below]
        for v in range(above):
            amount = factor * errors[unit_at + below + v]
            cells = target[weight_at + v * below : weight_at + (v + 1) * below]
            for u in range(below):
                cells[u] += amount * inputs[u]
        weight_at += below * above
        unit_at += below


@kernel
def train(
    rows: Any,
    block: BlockUpdate,
    scores: KernelScores | InteractionScores,
    rule: UpdateRule,
    state: OptimizerState,
    sizes: Sizes,
    features: int,
    clip: float | None,
    dropout: float | None,
    seed: int,
    factored: bool | None,
) -> None:
    """One pass over one block, batch by batch; `clip` bounds each row's part in the sum of a batch's gradients.

    With a clip gradients are only collected. Without one (None) numba leaves clipping out of the compiled code, and
    likewise dropout. Which units are left out follows from seed, number of the update, place in the batch and unit. The
    noise of it counts once in a score, and not as often as the echo says.
    """
    theta, decayed = state.theta, rule.decayed
    kind = theta.dtype.type
    first = 0
    own_rule, own = rule, state
    if factored is not None:
        first = features * sizes[0]
        moments = state.second[features + sizes[0] :]
        own = OptimizerState(theta[first:], state.gradient, state.first, moments, state.counters)
        own_rule = UpdateRule(ADAM, rule.l2, rule.momentum, decayed - first)
        table = new_table(rows, block, theta, state.second, features, sizes[0])
    target = gradient_target(own_rule, own, clip)
    every, width = sizes.sum(), sizes[-1]
    score, gradient = np.empty(width, theta.dtype), np.empty(width, theta.dtype)
    units = np.empty((block.batch_bounds[1], every), theta.dtype)
    errors = np.empty_like(units)
    for batch in range(len(block.rates)):
        begin, end = block.batch_bounds[batch], block.batch_bounds[batch + 1]
        scale = state.counters[0]
        for place in range(begin, end):
            row, slot = block.order[place], place - begin
            if place + _ROWS_AHEAD < len(block.order):
                prefetch(rows, block.start + block.order[place + _ROWS_AHEAD])
                _prefetch_weights(rows, block.start + block.order[place + _WEIGHTS_AHEAD], theta, sizes[0])
            _predict_row(rows, block.start + row, theta, decayed, scale, sizes, features, units[slot])
            if dropout is not None:
                drawn = mixed(mixed(np.uint64(seed) + np.uint64(state.counters[1])) + np.uint64(slot))
                predict_dropped(theta, decayed, scale, sizes, features, dropout, drawn, scores.echo, units[slot])
            # e = dLoss/doutputs weight / size, of a sum at score = total + echo (prediction - own_at_push)
            output_gradient(scores, row, units[slot, every - width :], score, gradient)
            _scale(gradient, scores.weights[row] / (end - begin), errors[slot, every - width :])
        _propagate_back(theta, decayed, scale, sizes, dropout, units[: end - begin], errors[: end - begin])
        if clip is not None:
            batch_order, limit = block.order[begin:end], clip / (end - begin)
            kept = _clip_rows(rows, block.start, batch_order, limit, sizes, len(theta) - decayed, units, errors)
        rate = block.rates[batch]
        weight_factor, bias_factor = begin_update(own_rule, own, rate)
        # dLoss/dW_l = sum_i e_l h_l-1^T, dLoss/db_l = sum_i e_l, added row by row
        for place in range(begin, end):
            row, slot = block.start + block.order[place], place - begin
            if factored is None and place + _WEIGHTS_AHEAD < end:
                _prefetch_weights(rows, block.start + block.order[place + _WEIGHTS_AHEAD], target, sizes[0])
            if clip is not None and not kept[slot]:
                continue
            if factored is None:
                _add_first_layer(rows, row, kind(weight_factor), errors[slot, : sizes[0]], target)
            _add_later_layers(
                kind(weight_factor), sizes, features * sizes[0] - first, units[slot], errors[slot], target
            )
            biases = target[decayed - first :]
            for u in range(len(biases)):
                biases[u] += kind(bias_factor) * errors[slot, u]
        end_update(own_rule, own, rate)
        if factored is not None:
            update_table(
                table, rows, block.start, block.order[begin:end], errors, batch + 1, rule.l2, rate, state.counters[1]
            )
        if dropout is not None and rule.optimizer == SGD:
            state.counters[1] += 1.0
    if factored is not None and len(block.rates):
        finish_table(table, len(block.rates), rule.l2, block.rates[len(block.rates) - 1], state.counters[1])
