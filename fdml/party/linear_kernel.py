"""Compiled passes of the linear model: theta is weights `(width, outputs)`, then the biases."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

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
    row_gradient,
)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _predict_row(rows: Any, row: int, theta: Floats, decayed: int, scale: float, own: Floats) -> None:
    outputs = len(own)
    if outputs == 1:
        total = theta.dtype.type(0.0)
        for place in entries(rows, row):
            feature, value = entry(rows, row, place)
            total += value * theta[feature]
        own[0] = total
    else:
        own[:] = 0.0
        for place in entries(rows, row):
            feature, value = entry(rows, row, place)
            for k in range(outputs):
                own[k] += value * theta[feature * np.uint64(outputs) + np.uint64(k)]
    for k in range(outputs):
        own[k] *= scale
        if len(theta) > decayed:
            own[k] += theta[decayed + k]


@kernel
def predict(rows: Any, start: int, recipe: Recipe, memory: Memory, out: Floats) -> None:
    """Write the predictions of the rows from `start` on to `out`."""
    for row in range(len(out)):
        _predict_row(rows, start + row, memory.theta, recipe.decayed, memory.clock[0], out[row])


@kernel
def train(rows: Any, lesson: Lesson, recipe: Recipe, memory: Memory) -> None:
    """One pass over one block, batch by batch."""
    theta, decayed = memory.theta, recipe.decayed
    kind = theta.dtype.type
    target = theta if recipe.rule == SGD else memory.gradient
    outputs = lesson.scores.shape[1]
    own, score = np.empty(outputs, theta.dtype), np.empty(outputs, theta.dtype)
    gradients = np.empty((lesson.edges[1], outputs), theta.dtype)
    for batch in range(len(lesson.rates)):
        begin, end = lesson.edges[batch], lesson.edges[batch + 1]
        for place in range(begin, end):
            row = lesson.order[place]
            _predict_row(rows, lesson.start + row, theta, decayed, memory.clock[0], own)
            row_gradient(lesson, row, end - begin, own, score, gradients[place - begin])
        rate = lesson.rates[batch]
        weight_factor, bias_factor = begin_update(recipe, memory, rate)
        for place in range(begin, end):
            row = lesson.start + lesson.order[place]
            gradient = gradients[place - begin]
            if outputs == 1:
                amount = kind(weight_factor * gradient[0])
                for where in entries(rows, row):
                    feature, value = entry(rows, row, where)
                    target[feature] += value * amount
            else:
                for where in entries(rows, row):
                    feature, value = entry(rows, row, where)
                    for k in range(outputs):
                        target[feature * np.uint64(outputs) + np.uint64(k)] += value * kind(weight_factor) * gradient[k]
            if len(theta) > decayed:
                for k in range(outputs):
                    target[decayed + k] += kind(bias_factor) * gradient[k]
        end_update(recipe, memory, rate)
