"""Asking for a row's memory before it is needed.

The rows of a block are visited in random order, so the processor cannot guess
which comes next; the kernels can, from the lesson's order. Asking changes no
value, and an address out of bounds does no harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

_LINE = 16
"""Entries in a cache line of 64 bytes."""
_READ, _KEEP_CLOSE, _DATA = 0, 3, 1
"""What `llvm.prefetch` is told after the address."""


@intrinsic  # type: ignore[untyped-decorator]
def _ask(_typing: Any, array: Any, place: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [address, number(_READ), number(_KEEP_CLOSE), number(_DATA)])
        return context.get_dummy_value()

    return types.void(array, place), emit


def ask_for(rows: Any, row: int) -> None:
    """Have a row's entries fetched to the cache; dense rows come in time by themselves. For kernels only."""
    raise NotImplementedError


@overload(ask_for, inline="always", strict=False)
def _ask_for(rows: Any, row: int) -> Any:  # noqa: ARG001 (numba goes by the names)
    if "indptr" not in rows.fields:
        return lambda rows, row: None  # noqa: ARG005

    def ask(rows: Any, row: int) -> None:
        for place in range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + 1]), np.uint64(_LINE)):
            _ask(rows.indices, place)
            _ask(rows.values, place)

    return ask
