"""What all compiled kernels share: rows, loss gradients, update rules, and the cache.

Parameters are one flat vector: `decayed` weights that L2 shrinks, then biases.
With plain SGD the weights are stored divided by `scale`, so that L2 costs one
multiplication per batch instead of one per weight.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from fdml.data.rows import Rows, SparseRows

Floats = NDArray[np.floating]
F = TypeVar("F", bound=Callable[..., Any])

SGD, MOMENTUM, ADAGRAD, ADAM = range(4)
LOGISTIC, HINGE, SQUARED, SOFTMAX = range(4)
_SMALLEST_SCALE = 1e-3
_ADAM_BETA2 = 0.999
_ADAM_EPSILON = 1e-8
_ADAGRAD_EPSILON = 1e-10
LINE = 16
"""Entries in a cache line of 64 bytes."""
_READ, _KEEP_CLOSE, _DATA = 0, 3, 1
"""What `llvm.prefetch` is told after the address."""
_ZERO, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
_FARTHEST = np.float32(87.0)
"""exp of more is no float32."""
_PER_DOUBLING = np.float32(1.0 / math.log(2.0))
_DOUBLING = np.float32(0.693359375)
"""ln 2 in nine bits, so that small multiples of it are exact."""
_DOUBLING_REST = np.float32(math.log(2.0) - 0.693359375)
_C3, _C4, _C5, _C6, _C7 = (np.float32(1.0 / math.factorial(n)) for n in range(3, 8))
_EXPONENT_OF_ONE, _MANTISSA_BITS = np.int32(127), np.int32(23)
LONGEST = 1e30
"""Where steps are private, a row longer than this, or with a longer gradient, teaches nothing: it might overflow."""


class BinaryRows(NamedTuple):
    """Sparse rows whose every entry is 1, as the kernels read them: only where entries stand, half of the memory."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]


def kernel_view(rows: Rows) -> Rows | BinaryRows:
    """The same rows for the kernels; those that `drop_unit_values` found to be all ones without their values."""
    if isinstance(rows, SparseRows) and rows.values.strides == (0,):
        return BinaryRows(rows.indptr, rows.indices)
    return rows


class BlockUpdate(NamedTuple):
    """All that one pass over one block teaches a party. Row 0 of every array is the block's first row."""

    start: int
    order: NDArray[np.int64]
    batch_bounds: NDArray[np.int64]
    """Batch b is order[batch_bounds[b]:batch_bounds[b + 1]]."""
    rates: NDArray[np.float64]
    """Step size of each batch."""
    scores: Floats
    """The total as received, with the party's own part exact; `(rows, outputs)`."""
    own_at_push: Floats
    """The party's own part of `scores`."""
    echo: float
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    loss: int


def empty_update(outputs: int, dtype: np.dtype[Any]) -> BlockUpdate:
    """A update without a batch: changes nothing, but has the kernels compiled."""
    nothing = np.zeros((0, outputs), dtype)
    none = np.zeros(0)
    return BlockUpdate(
        0, np.zeros(0, np.int64), np.zeros(2, np.int64), none, nothing, nothing, 1.0, none, none, LOGISTIC
    )


def one_batch(update: BlockUpdate, batch: int) -> BlockUpdate:
    """The same update with one of its batches alone."""
    begin, end = update.batch_bounds[batch : batch + 2]
    return update._replace(
        order=update.order[begin:end], batch_bounds=np.array([0, end - begin]), rates=update.rates[batch : batch + 1]
    )


class UpdateRule(NamedTuple):
    """How a gradient changes the parameters."""

    rule: int
    l2: float
    momentum: float
    decayed: int


class OptimizerState(NamedTuple):
    """Parameters and what the update rule remembers; arrays a rule does not need are empty."""

    theta: Floats
    gradient: Floats
    first: Floats
    second: Floats
    counters: NDArray[np.float64]
    """[scale of the weights, number of updates so far; of SGD, private ones alone are counted]."""


def new_optimizer_state(theta: Floats, rule: int) -> OptimizerState:
    """Fresh memory around initial parameters."""
    none = np.zeros(0, theta.dtype)
    return OptimizerState(
        theta,
        none if rule == SGD else np.zeros_like(theta),
        none if rule == SGD else np.zeros_like(theta),
        np.zeros_like(theta) if rule == ADAM else none,
        np.array([1.0, 0.0]),
    )


def _cache_folder() -> Path:
    """A folder named after the kernels' sources: compiled code never outlives what it was made from."""
    here = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(here.glob("*kernel*.py")):
        digest.update(source.read_bytes())
    beside = here / "__pycache__"
    writable = os.access(beside if beside.exists() else here, os.W_OK)
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fdml"
    chosen = Path(numba.config.CACHE_DIR) if numba.config.CACHE_DIR else beside if writable else home
    return chosen / f"kernels-{digest.hexdigest()}"


def kernel(function: F) -> F:
    """Compile a function: the GIL released, the result cached on disk.

    numba's own cache looks only at the file a kernel stands in, and would keep
    code made from an older version of this file.
    """
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_cache_folder())
    try:
        compiled: Any = numba.njit(
            nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}
        )(function)
    finally:
        numba.config.CACHE_DIR = before
    return cast(F, compiled)


def entries(rows: Any, row: int) -> Any:
    """The range of places of a row's entries; for kernels only."""
    raise NotImplementedError


def entry(rows: Any, row: int, place: int) -> Any:
    """Feature number and value of one entry; for kernels only.

    Numbers are unsigned, which spares numba's check for negative indices.
    """
    raise NotImplementedError


@overload(entries, inline="always", strict=False)
def _entries(rows: Any, row: int) -> Any:
    if "indptr" in rows.fields:
        return lambda rows, row: range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + 1]))
    return lambda rows, row: range(np.uint64(rows.values.shape[1]))


@overload(entry, inline="always", strict=False)
def _entry(rows: Any, row: int, place: int) -> Any:
    if "values" not in rows.fields:
        return lambda rows, row, place: (np.uint32(rows.indices[place]), _ONE)
    if "indptr" in rows.fields:
        return lambda rows, row, place: (np.uint32(rows.indices[place]), rows.values[place])
    return lambda rows, row, place: (place, rows.values[row, place])


@intrinsic
def prefetch_line(_typing: Any, array: Any, place: Any) -> Any:
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


def prefetch(rows: Any, row: int) -> None:
    """Have a row's entries fetched, as a block is visited in an order the processor cannot guess.

    Dense rows are long passes_per_exchange, which it fetches by itself.
    """
    raise NotImplementedError


@overload(prefetch, inline="always", strict=False)
def _prefetch(rows: Any, row: int) -> Any:
    if "indptr" not in rows.fields:
        return lambda rows, row: None

    def fetch_indices(rows: Any, row: int) -> None:
        for place in range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + 1]), np.uint64(LINE)):
            prefetch_line(rows.indices, place)  # type: ignore[call-arg]

    def fetch_entries(rows: Any, row: int) -> None:
        for place in range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + 1]), np.uint64(LINE)):
            prefetch_line(rows.indices, place)  # type: ignore[call-arg]
            prefetch_line(rows.values, place)

    return fetch_entries if "values" in rows.fields else fetch_indices


def logistic(values: Floats, powers: NDArray[np.int32]) -> None:
    """Replace every value by 1 / (1 + exp(-value)); `powers` is as long, for this to work with. For kernels only."""
    raise NotImplementedError


@overload(logistic, inline="always", strict=False)
def _logistic(values: Any, powers: Any) -> Any:
    if values.dtype == types.float64:

        def one_by_one(values: Any, powers: Any) -> None:
            for place in range(len(values)):
                values[place] = 1.0 / (1.0 + math.exp(-values[place]))

        return one_by_one

    def hstack(values: Any, powers: Any) -> None:
        """exp(x) is 2**k times exp of a rest, of which eight terms of its series are enough. No call: many at once."""
        for place in range(len(values)):
            x = min(max(-values[place], -_FARTHEST), _FARTHEST)
            k = np.floor(x * _PER_DOUBLING + _HALF)
            x = x - k * _DOUBLING - k * _DOUBLING_REST
            powers[place] = (np.int32(k) + _EXPONENT_OF_ONE) << _MANTISSA_BITS
            values[place] = ((((((_C7 * x + _C6) * x + _C5) * x + _C4) * x + _C3) * x + _HALF) * x + _ONE) * x + _ONE
        doubled = powers.view(np.float32)
        for place in range(len(values)):
            values[place] = _ONE / (_ONE + values[place] * doubled[place])

    return hstack


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def loss_gradients(loss: int, scores: Floats, labels: Floats, shares: Floats, powers: NDArray[np.int32]) -> None:
    """Replace scores of rows with one output by dLoss/dscore times each row's share; `powers` is to work with."""
    if loss == LOGISTIC:
        logistic(scores, powers)  # type: ignore[call-arg]
    if loss == HINGE:
        for seat in range(len(scores)):
            sign = _TWO * labels[seat] - _ONE
            scores[seat] = -sign * shares[seat] if sign * scores[seat] < _ONE else _ZERO
    else:
        for seat in range(len(scores)):
            scores[seat] = (scores[seat] - labels[seat]) * shares[seat]


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def loss_gradient(loss: int, score: Floats, label: float, out: Floats) -> None:
    """Write dLoss/dscore of one row to `out`."""
    if loss == LOGISTIC:
        out[0] = 1.0 / (1.0 + math.exp(-score[0])) - label
    elif loss == HINGE:
        sign = 2.0 * label - 1.0
        out[0] = -sign if sign * score[0] < 1.0 else 0.0
    elif loss == SQUARED:
        out[0] = score[0] - label
    else:
        highest = score[0]
        for k in range(1, len(score)):
            highest = max(highest, score[k])
        total = 0.0
        for k in range(len(score)):
            out[k] = math.exp(score[k] - highest)
            total += out[k]
        for k in range(len(score)):
            out[k] /= total
        out[int(label)] -= 1.0


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def row_gradient(update: BlockUpdate, row: int, count: int, own: Floats, score: Floats, out: Floats) -> None:
    """Write one row's share of the batch's mean gradient to `out`."""
    for k in range(len(own)):
        score[k] = update.scores[row, k] + update.echo * (own[k] - update.own_at_push[row, k])
    loss_gradient(update.loss, score, update.labels[row], out)
    share = update.weights[row] / count
    for k in range(len(own)):
        out[k] *= share


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def square_norm(rows: Any, row: int) -> float:
    """The squared length of a row; no feature of it stands there twice."""
    total = 0.0
    for place in entries(rows, row):
        _, value = entry(rows, row, place)
        total += np.float64(value) * np.float64(value)
    return total


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def clip_factor(inputs: float, square: float, limit: float) -> float:
    """What to multiply a row's gradient by so that it is no longer than `limit`; 0 leaves the row out.

    `inputs` and `square` are the squared lengths of what a layer is given (at most) and of the gradient.
    """
    factor = 1.0
    if not (inputs <= LONGEST**2 and square <= LONGEST**2):  # also where it is not a number
        factor = 0.0
    elif square > limit * limit:
        factor = limit / math.sqrt(square)
    return factor


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def begin_update(recipe: UpdateRule, memory: OptimizerState, rate: float) -> tuple[float, float]:
    """Prepare one update; returns by what a gradient is multiplied as it is added to weights and to biases.

    With SGD it is added to the parameters themselves, else to the gradient.
    """
    if recipe.rule != SGD:
        memory.gradient[:] = 0.0
        return 1.0, 1.0
    memory.counters[0] *= 1.0 - rate * recipe.l2
    if memory.counters[0] < _SMALLEST_SCALE:
        factor = memory.theta.dtype.type(memory.counters[0])
        for i in range(recipe.decayed):
            memory.theta[i] *= factor
        memory.counters[0] = 1.0
    return -rate / memory.counters[0], -rate


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def end_update(recipe: UpdateRule, memory: OptimizerState, rate: float) -> None:
    """Apply the collected gradient; nothing is left to do for SGD."""
    if recipe.rule == SGD:
        return
    theta, gradient = memory.theta, memory.gradient
    kind = theta.dtype.type
    memory.counters[1] += 1.0
    for i in range(recipe.decayed):
        gradient[i] += kind(recipe.l2) * theta[i]
    if recipe.rule == MOMENTUM:
        for i in range(len(theta)):
            memory.first[i] = kind(recipe.momentum) * memory.first[i] + gradient[i]
            theta[i] -= kind(rate) * memory.first[i]
    elif recipe.rule == ADAGRAD:
        for i in range(len(theta)):
            memory.first[i] += gradient[i] * gradient[i]
            theta[i] -= kind(rate) * gradient[i] / (math.sqrt(memory.first[i]) + kind(_ADAGRAD_EPSILON))
    else:
        beta1, beta2 = kind(recipe.momentum), kind(_ADAM_BETA2)
        rest1, rest2 = kind(1.0 - recipe.momentum), kind(1.0 - _ADAM_BETA2)
        correct1 = kind(1.0 / (1.0 - recipe.momentum ** memory.counters[1]))
        correct2 = kind(1.0 / (1.0 - _ADAM_BETA2 ** memory.counters[1]))
        for i in range(len(theta)):
            memory.first[i] = beta1 * memory.first[i] + rest1 * gradient[i]
            memory.second[i] = beta2 * memory.second[i] + rest2 * gradient[i] * gradient[i]
            root = math.sqrt(memory.second[i] * correct2) + kind(_ADAM_EPSILON)
            theta[i] -= kind(rate) * memory.first[i] * correct1 / root
