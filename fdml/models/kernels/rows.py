"""A party's rows as kernels read them: sparse, sparse with every entry 1, or dense."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from fdml.data.rows import DenseRows, PlainRows, Rows, SparseRows, plain_rows

LINE = 16
"""Entries in a cache line of 64 bytes."""
_READ, _KEEP_CLOSE, _DATA = 0, 3, 1
"""Arguments of `llvm.prefetch` after the address."""
_ONE = np.float32(1.0)


class BinaryRows(NamedTuple):
    """Sparse rows whose every entry is 1: only the places of the entries, half of the memory."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]


def kernel_view(given: Rows) -> PlainRows | BinaryRows:
    """The same rows for the kernels; without values where `drop_unit_values` found them to be all ones.

    numpy gives any empty array a stride of 0 bytes: rows without an entry keep the form of others, which is compiled.
    """
    if isinstance(given, DenseRows):
        return given
    rows = plain_rows(given)
    if isinstance(rows, SparseRows) and len(rows.values) and rows.values.strides == (0,):
        return BinaryRows(rows.indptr, rows.indices)
    return rows


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
    """Load the cache line of array[place]; changes no value, and harms nothing out of bounds."""

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
    """Have a row's entries loaded to the cache, as a block is visited in an order the processor cannot guess.

    Dense rows are long stretches, which it fetches by itself.
    """
    raise NotImplementedError


@overload(prefetch, inline="always", strict=False)
def _prefetch(rows: Any, row: int) -> Any:
    if "indptr" not in rows.fields:
        return lambda rows, row: None

    def prefetch_indices(rows: Any, row: int) -> None:
        for place in range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + 1]), np.uint64(LINE)):
            prefetch_line(rows.indices, place)  # type: ignore[call-arg]

    def prefetch_entries(rows: Any, row: int) -> None:
        for place in range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + 1]), np.uint64(LINE)):
            prefetch_line(rows.indices, place)  # type: ignore[call-arg]
            prefetch_line(rows.values, place)

    return prefetch_entries if "values" in rows.fields else prefetch_indices


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def square_norm(rows: Any, row: int) -> float:
    """The squared length of a row; no feature occurs twice in it."""
    total = 0.0
    for place in entries(rows, row):
        _, value = entry(rows, row, place)
        total += np.float64(value) * np.float64(value)
    return total
