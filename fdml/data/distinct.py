"""Distinct values of a column in bounded memory: exact for some thousands, an estimate beyond."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.data.column_types import is_number, is_temporal, missing, numbers, plain

KEPT = 16_384
"""The smallest hashes that are kept: so many distinct values are counted exactly, more with an error of about 1 %."""
_TOP = 2.0**64


class DistinctCount:
    """Counts distinct values by the smallest of their hashes: how dense those are tells how many there are."""

    def __init__(self) -> None:
        self._smallest: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._more = False

    def add(self, column: Any) -> None:
        """Count the values of a pyarrow column; missing ones do not count."""
        found = np.union1d(self._smallest, _hashes(column))
        self._more |= len(found) > KEPT
        self._smallest = found[:KEPT]

    @property
    def is_exact(self) -> bool:
        """Whether the count is no estimate."""
        return not self._more

    @property
    def count(self) -> int:
        """How many distinct values there were, or about how many."""
        if self.is_exact:
            return len(self._smallest)
        return round((KEPT - 1) * _TOP / float(self._smallest[-1]))


def _hashes(column: Any) -> NDArray[np.uint64]:
    """The hashes of the distinct values of a column, in any order."""
    values = plain(column)
    kind = values.type
    if is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return _mixed(_bits(values))
    present = values.filter(pa.array(~missing(values)))
    distinct = present.cast(pa.large_string()) if is_temporal(kind) else present
    each = distinct.unique().to_pylist()
    raw = b"".join(blake2b(repr(value).encode(), digest_size=8).digest() for value in each)
    return np.frombuffer(raw, "<u8").astype(np.uint64)


def _bits(values: Any) -> NDArray[np.uint64]:
    """Whole numbers as they are, others by their bits; each once."""
    if pa.types.is_integer(values.type):
        whole = values.drop_null()
        signed = pa.types.is_signed_integer(whole.type)
        found = np.unique(whole.to_numpy(zero_copy_only=False).astype(np.int64 if signed else np.uint64))
        return found.view(np.uint64)
    real = numbers(values)
    return np.unique(real[~np.isnan(real)] + 0.0).view(np.uint64)  # -0.0 becomes 0.0


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64: equal numbers have equal hashes, and those of neighbours are far apart."""
    with np.errstate(over="ignore"):
        mixed = bits + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
