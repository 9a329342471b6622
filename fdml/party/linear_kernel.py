"""Compiled passes of the linear model: theta is weights `(width, outputs)`, then the biases."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from fdml.party.kernels import (
    SGD,
    Floats,
    Lesson,
    Memory,
    Recipe,
    begin_update,
    end_update,
    entries,
    entry,
    kernel,
    loss_gradient,
    shortening,
    square_norm,
)

_AHEAD = 6
"""How many rows ahead of its use a row is fetched to the cache."""
_LINE = 16
"""Entries in a cache line of 64 bytes."""
_READ, _KEEP_CLOSE, _DATA = 0, 3, 1
"""What `llvm.prefetch` is told after the address."""


@intrinsic
def _fetch_line(_typing: Any, array: Any, place: Any) -> Any:
    """Have the cache line of array[place] fetched; changes no value, and harms nothing out of bounds."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(prefetch, [address, number(_READ), number(_KEEP_CLOSE), number(_DATA)])
        return context.get_dummy_value()

    return types.void(array, place), emit


def _fetch(rows: Any, row: int) -> None:
    """Have a row's entries fetched, as a block is visited in an order the processor cannot guess.

    Dense rows are long stretches, which it fetches by itself.
    """
    raise NotImplementedError


@overload(_fetch, inline="always", strict=False)
def _fetch_overload(rows: Any, row: int) -> Any:  # noqa: ARG001 (numba goes by the names)
    if "indptr" not in rows.fields:
        return lambda rows, row: None  # noqa: ARG005

    def fetch(rows: Any, row: int) -> None:
        for place in range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + 1]), np.uint64(_LINE)):
            _fetch_line(rows.indices, place)  # type: ignore[call-arg]
            _fetch_line(rows.values, place)

    return fetch


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _predict_rows(
    rows: Any,
    start: int,
    order: NDArray[np.int64],
    begin: int,
    end: int,
    theta: Floats,
    decayed: int,
    scale: float,
    out: Floats,
) -> None:
    """Write the predictions of the rows order[begin:end], counted from `start`, to `out`.

    A function of one row would cost as much in being called as in its work.
    """
    outputs = out.shape[1]
    for place in range(begin, end):
        row, seat = start + order[place], place - begin
        if place + _AHEAD < len(order):
            _fetch(rows, start + order[place + _AHEAD])
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
def predict(rows: Any, start: int, recipe: Recipe, memory: Memory, out: Floats) -> None:
    """Write the predictions of the rows from `start` on to `out`."""
    order = np.arange(len(out))
    _predict_rows(rows, start, order, 0, len(out), memory.theta, recipe.decayed, memory.clock[0], out)


@kernel
def _shorten(
    rows: Any, start: int, order: NDArray[np.int64], limit: float, biased: bool, gradients: Floats
) -> NDArray[np.bool_]:
    """Shorten the gradient that each row has in all parameters to `limit`; says which rows may be learned from."""
    kept = np.empty(len(order), np.bool_)
    for seat in range(len(order)):
        inputs, square = square_norm(rows, start + order[seat]), 0.0
        for k in range(gradients.shape[1]):
            square += np.float64(gradients[seat, k]) * np.float64(gradients[seat, k])
        factor = shortening(inputs, square * (inputs + (1.0 if biased else 0.0)), limit)
        kept[seat] = factor > 0.0
        if factor < 1.0:
            for k in range(gradients.shape[1]):
                gradients[seat, k] = np.float64(gradients[seat, k]) * factor
    return kept


@kernel
def train(rows: Any, lesson: Lesson, recipe: Recipe, memory: Memory, clip: float | None) -> None:
    """One pass over one block, batch by batch; `clip` bounds each row's part in the sum of a batch's gradients.

    Without a clip (None) numba leaves out all that is said about it here.
    """
    theta, decayed = memory.theta, recipe.decayed
    kind = theta.dtype.type
    target = theta if recipe.rule == SGD else memory.gradient
    outputs = lesson.scores.shape[1]
    score, gradient = np.empty(outputs, theta.dtype), np.empty(outputs, theta.dtype)
    gradients = np.empty((lesson.edges[1], outputs), theta.dtype)
    for batch in range(len(lesson.rates)):
        begin, end = lesson.edges[batch], lesson.edges[batch + 1]
        _predict_rows(rows, lesson.start, lesson.order, begin, end, theta, decayed, memory.clock[0], gradients)
        for place in range(begin, end):
            row, seat = lesson.order[place], place - begin
            # `row_gradient` written out, as handing it the lesson for every row took half of the time.
            for k in range(outputs):
                score[k] = lesson.scores[row, k] + lesson.echo * (gradients[seat, k] - lesson.own_then[row, k])
            loss_gradient(lesson.loss, score, lesson.labels[row], gradient)
            share = lesson.weights[row] / (end - begin)
            for k in range(outputs):
                gradients[seat, k] = gradient[k] * share
        if clip is not None:
            batch_order, limit = lesson.order[begin:end], clip / (end - begin)
            kept = _shorten(rows, lesson.start, batch_order, limit, len(theta) > decayed, gradients)
        rate = lesson.rates[batch]
        weight_factor, bias_factor = begin_update(recipe, memory, rate)
        for place in range(begin, end):
            row, seat = lesson.start + lesson.order[place], place - begin
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
            if len(theta) > decayed:
                for k in range(outputs):
                    target[decayed + k] += kind(bias_factor) * gradients[seat, k]
        end_update(recipe, memory, rate)
