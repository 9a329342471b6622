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
from fdml.models.kernels.rows import entries, entry
from fdml.models.losses import Floats
from fdml.models.signals import BlockUpdate

_EPSILON, _ONE = np.float32(ADAM_EPSILON), np.float32(1.0)


class Entries(NamedTuple):
    """The entries of a batch of sparse rows, feature by feature; room for those of the block's largest batch."""

    last: NDArray[np.int32]
    """By feature: the last entry that the batch has of it, or -1."""
    before: NDArray[np.int32]
    """By entry: the one before it of the same feature, or -1."""
    slots: NDArray[np.uint32]
    """By entry: the place of its row in the batch."""
    values: Floats
    touched: NDArray[np.uint32]
    """The features that the batch has."""
    sources: NDArray[np.uint32]
    """By touched feature: which of `Table.gradients` is its own."""
    amounts: Floats
    """By touched feature: by what the source is to be multiplied, to be the gradient."""
    steps: Floats
    """By touched feature: |g|^2 at first, then by what the source is multiplied and taken off the weights."""
    shrinks: Floats
    """By touched feature: by what the weights are multiplied before."""


class Table(NamedTuple):
    """Weights of a first layer, and what the updates of a block need of them."""

    weights: Floats
    """Feature by feature."""
    by_feature: Floats
    """The second moment of each feature: the mean over its weights."""
    by_unit: Floats
    """The second moment of each unit: of the errors of rows. Only their proportions count."""
    squares: Floats
    """|w|^2 / U of each feature when the block began."""
    factors: Floats
    """Of this batch: how much longer the steps of a unit's weights are than those of others."""
    gradients: Floats
    """The errors of the batch's rows times the factors, `(rows, units)`; then sums of them, of features in several."""
    seen: NDArray[np.int64]
    """Up to how many of the block's batches each feature has been brought."""
    kept: Floats
    """beta2 to the power of 0, 1, 2 and so on."""
    entries: Entries


def _most_entries(rows: Any, block: BlockUpdate) -> int:
    """Of the block's largest batch; 0 of dense rows, which need no lists."""
    raise NotImplementedError


@overload(_most_entries, strict=False)
def _most_entries_overload(rows: Any, block: Any) -> Any:
    if "indptr" not in rows.fields:
        return lambda rows, block: 0

    def most(rows: Any, block: BlockUpdate) -> int:
        largest = 0
        for batch in range(len(block.rates)):
            size = 0
            for place in range(block.batch_bounds[batch], block.batch_bounds[batch + 1]):
                row = block.start + block.order[place]
                size += rows.indptr[row + 1] - rows.indptr[row]
            largest = max(largest, size)
        return largest

    return most


@kernel
def new_table(rows: Any, block: BlockUpdate, theta: Floats, second: Floats, features: int, units: int) -> Table:
    """The table at the front of `theta`, whose second moments are at the front of `second`."""
    kind, size = theta.dtype, _most_entries(rows, block)
    squares = np.zeros(features, kind)
    for feature in range(features):
        squares[feature] = _mean_square(theta[feature * units : (feature + 1) * units])
    rows_of_batch = block.batch_bounds[1] if len(block.rates) else 0
    lists = Entries(
        np.full(features if size else 0, -1, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.uint32),
        np.empty(size, kind),
        np.empty(size + 1, np.uint32),
        np.empty(size, np.uint32),
        np.empty(size, kind),
        np.empty(size, kind),
        np.empty(size, kind),
    )
    return Table(
        theta[: features * units],
        second[:features],
        second[features : features + units],
        squares,
        np.zeros(units, kind),
        np.zeros((rows_of_batch + min(size // 2, features) + 1, units), kind),
        np.zeros(features, np.int64),
        (ADAM_BETA2 ** np.arange(len(block.rates) + 1)).astype(kind),
        lists,
    )


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _mean_square(values: Floats) -> np.floating[Any]:
    total = values.dtype.type(0.0)
    for u in range(np.uint64(len(values))):
        total += values[u] * values[u]
    return total / values.dtype.type(len(values))


@kernel
def _balance(table: Table, errors: Floats, size: int) -> None:
    """Take the errors of a batch of this size into the second moments of units, and write the gradients of its rows.

    c_u <- beta2 c_u + (1 - beta2) sum_i e_iu^2;  a gradient is e_iu times the factor sqrt(mean c / c_u).
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
            table.gradients[row, u] = errors[row, u] * factors[u]


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _moment(table: Table, feature: int, square: float, batches: int, l2: float) -> tuple[float, int]:
    """Bring a feature's second moment up to so many batches of the block; also by how many that is.

    Over k batches, of which the last had the gradient g, with U units and |w|^2 of when the block began:
    s <- beta2^k s + (1 - beta2) |g|^2 / U + (1 - beta2^k) l2^2 |w|^2 / U.  `square` is |g|^2 / U.
    """
    kind = table.weights.dtype.type
    passed = batches - table.seen[feature]
    table.seen[feature] = batches
    kept = table.kept[passed]
    moment = kept * table.by_feature[feature] + kind(1.0 - ADAM_BETA2) * square
    moment += (kind(1.0) - kept) * kind(l2 * l2) * table.squares[feature]
    table.by_feature[feature] = moment
    return moment, passed


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _shrink_and_step(moment: float, passed: float, l2: float, rate: float, correct: float) -> tuple[Any, Any]:
    """The factors of a feature's weights and of its gradient, with d = sqrt(s correct) + 1e-8 over k batches.

    w <- w / (1 + rate l2 k / d) - rate / d g, so that a moment past all numbers leaves the weights as they are.
    """
    root = math.sqrt(moment * correct) + _EPSILON
    step = rate / root
    return _ONE / (_ONE + step * l2 * passed), step


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _step(table: Table, feature: int, gradient: Floats, batches: int, l2: float, rate: float, correct: float) -> None:
    """Bring one feature up to so many batches of the block; the last of them had this gradient."""
    kind, units = table.weights.dtype.type, np.uint64(len(gradient))
    moment, passed = _moment(table, feature, _mean_square(gradient), batches, l2)
    shrink, step = _shrink_and_step(moment, kind(passed), kind(l2), kind(rate), kind(correct))
    weights = table.weights[np.uint64(feature) * units : np.uint64(feature) * units + units]
    for u in range(units):
        weights[u] = shrink * weights[u] - step * gradient[u]


@kernel
def _update_dense(
    table: Table,
    rows: Any,
    start: int,
    order: NDArray[np.int64],
    batches: int,
    l2: float,
    rate: float,
    correct: float,
) -> None:
    """One batch of dense rows: every feature has all of them."""
    total = table.gradients[len(table.gradients) - 1]
    for feature in range(rows.values.shape[1]):
        total[:] = 0.0
        for slot in range(len(order)):
            _add(total, rows.values[start + order[slot], feature], table.gradients[slot])
        _step(table, feature, total, batches, l2, rate, correct)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _add(total: Floats, value: float, gradient: Floats) -> None:
    for u in range(np.uint64(len(total))):
        total[u] += value * gradient[u]


@kernel
def _list_entries(lists: Entries, rows: Any, start: int, order: NDArray[np.int64]) -> np.uint64:
    """List a batch's entries feature by feature; gives how many features it has."""
    number, count = np.uint64(0), np.uint64(0)
    for slot in range(len(order)):
        for place in entries(rows, start + order[slot]):
            feature, value = entry(rows, start + order[slot], place)
            lists.before[number], lists.slots[number], lists.values[number] = lists.last[feature], slot, value
            lists.touched[count] = feature
            count += np.uint64(lists.last[feature] < 0)
            lists.last[feature] = number
            number += np.uint64(1)
    return count


@kernel
def _gather(lists: Entries, count: np.uint64, size: int, gradients: Floats) -> None:
    """Find each touched feature's gradient and |g|^2 / U: where it has one entry, from the error of that row."""
    number, squares = np.uint32(size), np.empty(size, gradients.dtype)
    for slot in range(size):
        squares[slot] = _mean_square(gradients[slot])
    for at in range(count):
        place = lists.last[lists.touched[at]]
        lists.last[lists.touched[at]] = -1
        slot, value = lists.slots[place], lists.values[place]
        if lists.before[place] < 0:
            lists.sources[at], lists.amounts[at], lists.steps[at] = slot, value, value * value * squares[slot]
            continue
        total = gradients[number]
        total[:] = 0.0
        while place >= 0:
            _add(total, lists.values[place], gradients[lists.slots[place]])
            place = lists.before[place]
        lists.sources[at], lists.amounts[at], lists.steps[at] = number, 1.0, _mean_square(total)
        number += np.uint32(1)


@kernel
def _apply(weights: Floats, gradients: Floats, lists: Entries, count: np.uint64) -> None:
    """Change the weights of the touched features by their factors."""
    units, touched = np.uint64(gradients.shape[1]), lists.touched
    for at in range(count):
        own = weights[np.uint64(touched[at]) * units : np.uint64(touched[at]) * units + units]
        gradient, shrink, step = gradients[lists.sources[at]], lists.shrinks[at], lists.steps[at]
        for u in range(units):
            own[u] = shrink * own[u] - step * gradient[u]


@kernel
def _update_sparse(
    table: Table,
    rows: Any,
    start: int,
    order: NDArray[np.int64],
    batches: int,
    l2: float,
    rate: float,
    correct: float,
) -> None:
    """One batch of sparse rows: pass by pass over its features, so that roots and divisions are made many at once."""
    lists, kind = table.entries, table.weights.dtype.type
    count = _list_entries(lists, rows, start, order)
    _gather(lists, count, len(order), table.gradients)
    for at in range(count):
        moment, passed = _moment(table, lists.touched[at], lists.steps[at], batches, l2)
        lists.shrinks[at], lists.steps[at] = passed, moment
    for at in range(count):
        moment, passed = lists.steps[at], lists.shrinks[at]
        shrink, step = _shrink_and_step(moment, passed, kind(l2), kind(rate), kind(correct))
        lists.shrinks[at], lists.steps[at] = shrink, step * lists.amounts[at]
    _apply(table.weights, table.gradients, lists, count)


def _update(
    table: Table,
    rows: Any,
    start: int,
    order: Any,
    batches: int,
    l2: float,
    rate: float,
    correct: float,
) -> None:
    raise NotImplementedError


@overload(_update, strict=False)
def _update_overload(
    table: Any, rows: Any, start: Any, order: Any, batches: Any, l2: Any, rate: Any, correct: Any
) -> Any:
    update = _update_sparse if "indptr" in rows.fields else _update_dense
    return lambda table, rows, start, order, batches, l2, rate, correct: update(
        table, rows, start, order, batches, l2, rate, correct
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

    `errors` begin with the gradients of each row's units. `updates` counts those of all blocks.
    """
    _balance(table, errors, len(order))
    _update(table, rows, start, order, batches, l2, rate, 1.0 / (1.0 - ADAM_BETA2**updates))


@kernel
def finish_table(table: Table, batches: int, l2: float, rate: float, updates: float) -> None:
    """Bring all features up to the end of the block, which has so many batches."""
    correct = 1.0 / (1.0 - ADAM_BETA2**updates)
    none = table.gradients[len(table.gradients) - 1]
    none[:] = 0.0
    for feature in range(len(table.seen)):
        if table.seen[feature] < batches:
            _step(table, feature, none, batches, l2, rate, correct)
