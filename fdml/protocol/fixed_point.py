"""Predictions as whole numbers, so that sums are exact and independent of their order.

Every prediction passes here on its way out and back, so both ways are single compiled passes. They keep the
interpreter's lock: a pass takes a nanosecond a value, and for a block of a few hundred the threads of a channel
would take turns with it for longer than it lasts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numba.experimental.function_type  # the first call would import it, and change what other threads read
import numpy as np
from numpy.typing import NDArray

from fdml.settings.choices import Bits

Codes = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class FixedPoint:
    """The numbers that predictions are rounded to: steps of 2**-fraction_bits, stored in `bits` bits."""

    bits: Bits
    fraction_bits: int
    saturates: bool = False
    """Whether larger predictions are cut to the largest that fits; else they are an error."""
    limit: float | None = None
    """The largest prediction that may travel, where that is less than fits."""

    @cached_property
    def dtype(self) -> np.dtype[np.signedinteger[Any]]:
        """The type of its codes."""
        return np.dtype(f"int{self.bits}")

    @property
    def step(self) -> float:
        """The distance between two of its numbers."""
        return 2.0**-self.fraction_bits

    def largest_code(self, parties: int) -> int:
        """Of one of `parties` parties, so that their sum still fits. In 64 bits there is room for 2**11 of them."""
        fits = 2**52 if self.bits == 64 else (2 ** (self.bits - 1) - 1) // parties
        return fits if self.limit is None else min(fits, math.floor(self.limit * 2.0**self.fraction_bits))

    def largest(self, parties: int) -> float:
        """The largest prediction that may travel."""
        return self.largest_code(parties) * self.step


INT64 = FixedPoint(64, 32)
FIXED_POINTS: dict[int, FixedPoint] = {64: INT64, 32: FixedPoint(32, 20), 16: FixedPoint(16, 9, saturates=True)}
_STEP = {grid.dtype: grid.step for grid in FIXED_POINTS.values()}


def grid_of(bits: int, limit: float | None = None) -> FixedPoint:
    """The grid of a run's `value_bits`; with a largest prediction, to which larger ones are cut, where it has one.

    Fewer than 16 bits are those of differences, which add up to numbers of the 16-bit grid.
    """
    grid = FIXED_POINTS[max(bits, 16)]
    return grid if limit is None else replace(grid, limit=limit, saturates=True)


NARROW = 5
"""Bytes of a code of 64 bits on the wire, where all of a message fit."""
LARGEST = INT64.largest(1)


def encode(values: Floats, grid: FixedPoint = INT64) -> Codes:
    """Round to the grid. The caller has checked that all are numbers within the largest."""
    codes, _ = _rounded(values, grid, np.inf)
    return codes


def encode_within(values: Floats, grid: FixedPoint, bound: float) -> Codes | None:
    """Round to the grid; None if one of the values is no number from -bound to bound."""
    codes, all_within = _rounded(values, grid, bound)
    return codes if all_within else None


def decode(codes: Codes) -> NDArray[np.float64]:
    """Back to floats; exact for codes of up to 53 bits. The grid is known from the type of the codes."""
    return np.multiply(codes, _STEP[codes.dtype], dtype=np.float64)


def replace_own_part(total: Codes, codes: Codes, exact: Floats) -> Floats:
    """The floats of a total in which one part, that had these codes, is exact; in the exact part's precision."""
    result = np.empty_like(exact)
    _replace_own_part(total.reshape(-1), codes.reshape(-1), _STEP[codes.dtype], exact.reshape(-1), result.reshape(-1))
    return result


def limit_others(total: Codes, codes: Codes, most: int) -> tuple[Codes, float]:
    """A total of which the others' part, all but these codes, is within -most and most; and how large it was.

    The same array where nothing was to be cut.
    """
    flat, own = total.reshape(-1), codes.reshape(-1)
    largest = _largest_difference(flat, own)
    if largest <= most:
        return total, largest * _STEP[codes.dtype]
    limited = np.empty_like(flat)
    _limit_others(flat, own, most, limited)
    return limited.reshape(total.shape), largest * _STEP[codes.dtype]


def largest_size(codes: Codes) -> float:
    """The size of the largest code, without its sign; 0 where there are none."""
    return float(_largest_size(codes.reshape(-1)))


def size_of(code: float, kind: np.dtype[np.signedinteger[Any]]) -> float:
    """The prediction that a code of this type stands for."""
    return code * _STEP[kind]


def pack40(codes: Codes) -> bytes | None:
    """Codes of 64 bits as bytes of 40: the lower halves of all, little-endian, then a fifth byte of each.

    None if one of them does not fit. That takes a prediction of 128 or a mask: sums of predictions nearly always do.
    """
    low, fifth = np.empty(codes.size, "<u4"), np.empty(codes.size, np.int8)
    return low.tobytes() + fifth.tobytes() if _split(codes.reshape(-1), low, fifth) else None


def unpack40(raw: bytes) -> Codes:
    """The codes that `pack40` made these bytes of."""
    count = len(raw) // NARROW
    codes = np.empty(count, np.int64)
    _join(np.frombuffer(raw, "<u4", count), np.frombuffer(raw, np.int8, count, 4 * count), codes)
    return codes


def _rounded(values: Floats, grid: FixedPoint, bound: float) -> tuple[Codes, bool]:
    """Codes, and whether all values are within the bound; 16 bits are rounded in single precision."""
    kind = np.float64 if grid.bits > 16 else np.float32
    narrow = np.ascontiguousarray(values, None if grid.bits > 16 else np.float32)
    codes: Codes = np.empty(narrow.shape, grid.dtype)
    return codes, _round(narrow.reshape(-1), kind(2.0**grid.fraction_bits), bound, codes.reshape(-1))


@numba.njit(cache=True)
def _round(values: Floats, factor: np.floating[Any], bound: float, codes: Codes) -> bool:
    all_within = True
    for place in range(len(values)):
        all_within &= abs(values[place]) <= bound  # a NaN is not
        codes[place] = np.rint(values[place] * factor)
    return all_within


@numba.njit(cache=True)
def _replace_own_part(total: Codes, codes: Codes, step: float, exact: Floats, result: Floats) -> None:
    for place in range(len(codes)):
        others = codes.dtype.type(total[place] - codes[place])  # in its own type, where sums with masks begin again
        result[place] = others * step + np.float64(exact[place])


@numba.njit(cache=True)
def _largest_difference(total: Codes, codes: Codes) -> float:
    lowest = highest = codes.dtype.type(0)  # whole numbers, several at a time: ten times as fast as sizes in floats
    for place in range(len(codes)):
        others = codes.dtype.type(total[place] - codes[place])
        lowest, highest = min(lowest, others), max(highest, others)
    return max(-np.float64(lowest), np.float64(highest))


@numba.njit(cache=True)
def _largest_size(codes: Codes) -> float:
    lowest = highest = codes.dtype.type(0)
    for place in range(len(codes)):
        lowest, highest = min(lowest, codes[place]), max(highest, codes[place])
    return max(-np.float64(lowest), np.float64(highest))


@numba.njit(cache=True)
def _limit_others(total: Codes, codes: Codes, most: int, limited: Codes) -> None:
    for place in range(len(codes)):
        others = codes.dtype.type(total[place] - codes[place])
        limited[place] = codes[place] + min(max(others, -most), most)


@numba.njit(cache=True)
def _split(codes: Codes, low: NDArray[np.uint32], fifth: NDArray[np.int8]) -> bool:
    all_fit = True
    for place in range(len(codes)):
        high = codes[place] >> 32
        all_fit &= high == np.int8(high)
        low[place], fifth[place] = codes[place], high
    return all_fit


@numba.njit(cache=True)
def _join(low: NDArray[np.uint32], fifth: NDArray[np.int8], codes: Codes) -> None:
    for place in range(len(codes)):
        codes[place] = (np.int64(fifth[place]) << 32) | np.int64(low[place])
