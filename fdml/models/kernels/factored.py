"""Adam for a table of weights, `(features, units)`, that keeps one second moment per feature and one per unit.

A batch has few of many features. With a second moment and a momentum for each weight, every batch would read and write
all of them. Here it reads and writes the weights of its own features alone, once. What L2 and forgetting do to the
other features is made up for when a batch has them again, or when the block ends.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from fdml.models.kernels.compiler import kernel
from fdml.models.kernels.optimizers import ADAM_BETA2, ADAM_EPSILON
from fdml.models.kernels.rows import LINE, entries, entry, prefetch_line
from fdml.models.losses import Floats

_AHEAD = np.uint64(4)
"""How many features ahead of its use the weights of one are loaded to the cache."""


class Table(NamedTuple):
    """Weights of a first layer, and what the updates of a block need of them."""

    weights: Floats
    """Feature by feature."""
    by_feature: Floats
    """The second moment of each feature: the mean over its weights."""
    by_unit: Floats
    """The second moment of each unit: of the errors of rows. Only their proportions count."""
    factors: Floats
    """Of this batch: how much longer the steps of a unit's weights are than those of others."""
    gradient: Floats
    """Of one feature's weights, times the factors."""
    seen: NDArray[np.int64]
    """Up to how many of the block's batches each feature has been brought."""
    kept: Floats
    """beta2 to the power of 0, 1, 2 and so on."""
    last: NDArray[np.int32]
    """The last entry that the batch has of each feature, or -1."""
    touched: NDArray[np.uint32]
    """The features that the batch has, and room for one more."""


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def new_table(theta: Floats, second: Floats, features: int, units: int, batches: int) -> Table:
    """The table at the front of `theta`, whose second moments are at the front of `second`."""
    return Table(
        theta[: features * units],
        second[:features],
        second[features : features + units],
        np.zeros(units, theta.dtype),
        np.zeros(units, theta.dtype),
        np.zeros(features, np.int64),
        (ADAM_BETA2 ** np.arange(batches + 1)).astype(theta.dtype),
        np.full(features, -1, np.int32),
        np.empty(features + 1, np.uint32),
    )


@kernel
def _balance(table: Table, errors: Floats, size: int) -> None:
    """Take the errors of a batch of this size into the second moments of units, and multiply them by the factors.

    c_u <- beta2 c_u + (1 - beta2) sum_i e_iu^2;  the factors are sqrt(mean c / c_u).
    """
    factors, moments, kind = table.factors, table.by_unit, table.weights.dtype.type
    factors[:] = 0.0
    for row in range(size):
        for u in range(len(factors)):
            factors[u] += errors[row, u] * errors[row, u]
    mean = 0.0
    for u in range(len(factors)):
        moments[u] = kind(ADAM_BETA2) * moments[u] + kind(1.0 - ADAM_BETA2) * factors[u]
        mean += np.float64(moments[u]) / len(factors)
    for u in range(len(factors)):
        factors[u] = math.sqrt(mean / moments[u]) if moments[u] > 0.0 else 1.0
    for row in range(size):
        for u in range(len(factors)):
            errors[row, u] *= factors[u]


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _step(table: Table, feature: int, batches: int, l2: float, rate: float, correct: float) -> None:
    """Bring one feature up to so many batches of the block; `table.gradient` is g of the last of them.

    Over k batches, of which the last had the gradient g, with U units:
    s <- beta2^k s + (1 - beta2) |g|^2 / U + (1 - beta2^k) l2^2 |w|^2 / U,  then with d = sqrt(s correct) + 1e-8
    w <- w d / (d + rate l2 k) - rate / d g.
    """
    kind, gradient, units = table.weights.dtype.type, table.gradient, np.uint64(len(table.gradient))
    weights = table.weights[np.uint64(feature) * units : np.uint64(feature) * units + units]
    steep, long = kind(0.0), kind(0.0)
    for u in range(units):
        steep += gradient[u] * gradient[u]
        long += weights[u] * weights[u]
    passed = batches - table.seen[feature]
    table.seen[feature] = batches
    kept = table.kept[passed]
    moment = kept * table.by_feature[feature] + kind((1.0 - ADAM_BETA2) / units) * steep
    moment += (kind(1.0) - kept) * kind(l2 * l2 / units) * long
    table.by_feature[feature] = moment
    root = math.sqrt(moment * kind(correct)) + kind(ADAM_EPSILON)
    shrink, step = root / (root + kind(rate * l2) * kind(passed)), kind(rate) / root
    for u in range(units):
        weights[u] = shrink * weights[u] - step * gradient[u]


@kernel
def _update_dense(
    table: Table,
    rows: Any,
    start: int,
    order: NDArray[np.int64],
    errors: Floats,
    batches: int,
    l2: float,
    rate: float,
    correct: float,
) -> None:
    """One batch of dense rows: every feature has all of them."""
    for feature in range(rows.values.shape[1]):
        table.gradient[:] = 0.0
        for slot in range(len(order)):
            value = rows.values[start + order[slot], feature]
            for u in range(len(table.gradient)):
                table.gradient[u] += value * errors[slot, u]
        _step(table, feature, batches, l2, rate, correct)


@kernel
def _update_sparse(
    table: Table,
    rows: Any,
    start: int,
    order: NDArray[np.int64],
    errors: Floats,
    batches: int,
    l2: float,
    rate: float,
    correct: float,
) -> None:
    """One batch of sparse rows, feature by feature.

    The entries of a feature are a list, from the last to the first: `table.last` has the last, `before` the one before.
    """
    last, touched, gradient = table.last, table.touched, table.gradient
    units, size = np.uint64(len(gradient)), 0
    for slot in range(len(order)):
        size += rows.indptr[start + order[slot] + 1] - rows.indptr[start + order[slot]]
    before, slots, values = np.empty(size, np.int32), np.empty(size, np.uint32), np.empty(size, errors.dtype)
    number, count = np.uint64(0), np.uint64(0)
    for slot in range(len(order)):
        for place in entries(rows, start + order[slot]):
            feature, value = entry(rows, start + order[slot], place)
            before[number], slots[number], values[number] = last[feature], slot, value
            touched[count] = feature
            count += np.uint64(last[feature] < 0)
            last[feature] = number
            number += np.uint64(1)
    for at in range(count):
        if at + _AHEAD < count:
            base = np.uint64(touched[at + _AHEAD]) * units
            for unit in range(np.uint64(0), units, np.uint64(LINE)):
                prefetch_line(table.weights, base + unit)  # type: ignore[call-arg]
        gradient[:] = 0.0
        place = last[touched[at]]
        last[touched[at]] = -1
        while place >= 0:
            value, error = values[place], errors[slots[place], :units]
            for u in range(units):
                gradient[u] += value * error[u]
            place = before[place]
        _step(table, touched[at], batches, l2, rate, correct)


def _update(
    table: Table,
    rows: Any,
    start: int,
    order: Any,
    errors: Floats,
    batches: int,
    l2: float,
    rate: float,
    correct: float,
) -> None:
    raise NotImplementedError


@overload(_update, strict=False)
def _update_overload(
    table: Any, rows: Any, start: Any, order: Any, errors: Any, batches: Any, l2: Any, rate: Any, correct: Any
) -> Any:
    update = _update_sparse if "indptr" in rows.fields else _update_dense
    return lambda table, rows, start, order, errors, batches, l2, rate, correct: update(
        table, rows, start, order, errors, batches, l2, rate, correct
    )


@kernel
def update_table(
    table: Table,
    rows: Any,
    start: int,
    order: NDArray[np.int64],
    errors: Floats,
    batches: int,
    l2: float,
    rate: float,
    updates: float,
) -> None:
    """Apply the block's batch number `batches`, counted from 1: its rows `order`, counted from `start`.

    `errors` begin with the gradients of each row's units; these are changed. `updates` counts those of all blocks.
    """
    _balance(table, errors, len(order))
    _update(table, rows, start, order, errors, batches, l2, rate, 1.0 / (1.0 - ADAM_BETA2**updates))


@kernel
def finish_table(table: Table, batches: int, l2: float, rate: float, updates: float) -> None:
    """Bring all features up to the end of the block, which has so many batches."""
    correct = 1.0 / (1.0 - ADAM_BETA2**updates)
    table.gradient[:] = 0.0
    for feature in range(len(table.seen)):
        if table.seen[feature] < batches:
            _step(table, feature, batches, l2, rate, correct)
