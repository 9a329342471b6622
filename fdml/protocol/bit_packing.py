"""Whole numbers of few bits as bytes: number i has the bits from i * bits on, the lowest first."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from fdml.protocol.fixed_point import Codes

MOST_BITS = 16
"""Of a packed number; it is read into an int16."""
Bytes = NDArray[np.uint8]
Narrow = np.ndarray[Any, np.dtype[np.int16]]


def packed_size(count: int, bits: int) -> int:
    """Bytes of so many numbers; the last byte may have room left, which is zero."""
    return -(-count * bits // 8)


def pack_bits(codes: Codes, bits: int) -> bytes:
    """The lowest bits of each code: whatever it was, it comes back as it is in the ring of 2**bits."""
    packed = np.zeros(packed_size(codes.size, bits), np.uint8)
    _pack(np.ascontiguousarray(codes).reshape(-1), bits, packed)
    return packed.tobytes()


def unpack_bits(raw: bytes, count: int, bits: int) -> Codes | None:
    """The codes, from -2**(bits - 1) on; None unless the bytes are just those of so many numbers."""
    if len(raw) != packed_size(count, bits):
        return None
    codes = np.empty(count, np.int16)
    return codes if _unpack(np.frombuffer(raw, np.uint8), bits, codes) else None


def in_ring(codes: Codes, bits: int) -> Codes:
    """The numbers from -2**(bits - 1) on that equal these modulo 2**bits; codes are int16."""
    room = MOST_BITS - bits
    ring: Codes = np.right_shift(np.left_shift(codes, room), room)
    return ring


@numba.njit(nogil=True, cache=True)
def _pack(codes: Codes, bits: int, packed: Bytes) -> None:
    waiting, filled, place = np.int64(0), 0, 0
    for code in codes:
        waiting |= (np.int64(code) & ((1 << bits) - 1)) << filled
        filled += bits
        while filled >= 8:
            packed[place] = waiting & 255
            waiting >>= 8
            filled -= 8
            place += 1
    if filled:
        packed[place] = waiting & 255


@numba.njit(nogil=True, cache=True)
def _unpack(packed: Bytes, bits: int, codes: Narrow) -> bool:
    """Whether the room that is left is zero."""
    waiting, filled, place = np.int64(0), 0, 0
    half = 1 << (bits - 1)
    for number in range(len(codes)):
        while filled < bits:
            waiting |= np.int64(packed[place]) << filled
            filled += 8
            place += 1
        low = waiting & ((1 << bits) - 1)
        codes[number] = (low ^ half) - half
        waiting >>= bits
        filled -= bits
    return bool(waiting == 0)
