"""Tensors of the Open Inference Protocol v2, as JSON and in its binary extension.

Input tensors become pyarrow arrays of one dimension. Sizes are checked before anything is allocated, and an error
names the tensor and the row, counted from 1, but never a value: values are ids of persons.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fdml.errors import RequestRefused
from fdml.protocol.quoting import quoted

BYTES, FP64, BOOL = "BYTES", "FP64", "BOOL"
_NUMBERS = {
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP32": "<f4",
    FP64: "<f8",
}
DATATYPES = (BYTES, *_NUMBERS)
"""Types of tensors that can be read."""
_LENGTH = struct.Struct("<I")
_LONGEST_TEXT = 1024
"""Bytes of a text of an input."""


@dataclass(frozen=True, eq=False)
class Output:
    """An output: numbers or truth values, `(rows,)` or `(rows, columns)`, or of every row one of a few texts."""

    name: str
    numbers: NDArray[np.float64] | NDArray[np.bool_] | None = None
    texts: Sequence[str] = ()
    which: NDArray[np.int64] | None = None
    """Which of the texts each row has; of texts alone."""

    @property
    def datatype(self) -> str:
        """As the protocol names it."""
        if self.numbers is None:
            return BYTES
        return BOOL if self.numbers.dtype == bool else FP64

    @property
    def shape(self) -> list[int]:
        """Rows first."""
        if self.numbers is not None:
            return list(self.numbers.shape)
        return [0 if self.which is None else len(self.which)]

    def data(self) -> list[Any]:
        """For JSON, in the order of rows; null in place of a number that there is none of."""
        if self.numbers is not None:
            flat = self.numbers.reshape(-1)
            values: list[Any] = flat.tolist()
            return values if np.isfinite(flat).all() else [each if math.isfinite(each) else None for each in values]
        return [self.texts[at] for at in self._which]

    def raw(self) -> bytes:
        """In the binary extension."""
        if self.numbers is not None:
            return np.ascontiguousarray(self.numbers, "u1" if self.numbers.dtype == bool else "<f8").tobytes()
        encoded = [text.encode() for text in self.texts]
        framed = [_LENGTH.pack(len(each)) + each for each in encoded]
        return b"".join([framed[at] for at in self._which])

    @property
    def _which(self) -> list[int]:
        found: list[int] = [] if self.which is None else self.which.tolist()
        return found


def read_shape(name: str, shape: Any, most: int) -> int:
    """The rows of an input of one column: a shape of [rows] or [rows, 1]."""
    is_shape = isinstance(shape, list) and all(type(each) is int and each >= 0 for each in shape)
    if not is_shape or not shape or shape[1:] not in ([], [1]):  # their product may take minutes to compute
        raise RequestRefused(400, f"input {quoted(name)} has a shape that is neither [rows] nor [rows, 1]")
    rows: int = shape[0]
    if rows > most:
        raise RequestRefused(413, f"input {quoted(name)} has {rows} rows; {most} is the most: send several requests")
    if not rows:
        raise RequestRefused(400, f"input {quoted(name)} has no rows; send at least one id")
    return rows


def read_json(name: str, datatype: str, rows: int, data: Any) -> Any:
    """A pyarrow array of an input's data in JSON, flat or nested as the shape is."""
    if not isinstance(data, list):
        raise RequestRefused(400, f"input {quoted(name)} has no data; send it as a list, or in the binary extension")
    values = [each[0] if isinstance(each, list) and len(each) == 1 else each for each in data]
    if len(values) != rows:
        raise RequestRefused(400, f"input {quoted(name)} has {len(values)} values; its shape says {rows}")
    wanted: tuple[type, ...] = (str,)
    if datatype != BYTES:
        wanted = (int, float) if datatype.startswith("FP") else (int,)
    wrong = next((row for row, each in enumerate(values) if type(each) not in wanted), None)
    if wrong is not None:
        raise RequestRefused(
            400, f"row {wrong + 1} of input {quoted(name)} is a {_kind(values[wrong])}, not of type {datatype}"
        )
    try:
        found = pa.array(values, pa.large_string() if datatype == BYTES else _arrow(datatype))
    except (pa.ArrowException, OverflowError, ValueError):
        raise RequestRefused(400, f"input {quoted(name)} has values that are not of type {datatype}") from None
    return _short(name, found) if datatype == BYTES else found


def read_raw(name: str, datatype: str, rows: int, raw: memoryview) -> Any:
    """A pyarrow array of an input's data in the binary extension."""
    if datatype != BYTES:
        kind = np.dtype(_NUMBERS[datatype])
        if len(raw) != rows * kind.itemsize:
            raise RequestRefused(
                400, f"input {quoted(name)} has {len(raw)} bytes; {rows} of {datatype} are {rows * kind.itemsize}"
            )
        return pa.array(np.frombuffer(raw, kind))
    try:
        return _short(name, pa.array(list(_texts(name, rows, raw)), pa.large_binary()).cast(pa.large_string()))
    except pa.ArrowInvalid:
        raise RequestRefused(400, f"input {quoted(name)} has a text that is not UTF-8") from None


def _short(name: str, texts: Any) -> Any:
    """The texts, unless one is too long: a normal form of Unicode takes the square of the length to find."""
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    if lengths.max() > _LONGEST_TEXT:
        row = int(np.argmax(lengths > _LONGEST_TEXT)) + 1
        raise RequestRefused(400, f"row {row} of input {quoted(name)} has over {_LONGEST_TEXT} bytes; ids are shorter")
    return texts


def _texts(name: str, rows: int, raw: memoryview) -> Iterator[bytes]:
    """Each text has its length before it, in 4 bytes."""
    at, end = 0, len(raw)
    whole = bytes(raw)
    for row in range(rows):
        if at + 4 > end:
            raise RequestRefused(400, f"input {quoted(name)} ends before row {row + 1} of {rows}")
        (length,) = _LENGTH.unpack_from(whole, at)
        at += 4 + length
        if at > end:
            raise RequestRefused(400, f"row {row + 1} of input {quoted(name)} is said to be longer than its bytes")
        yield whole[at - length : at]
    if at != end:
        raise RequestRefused(400, f"input {quoted(name)} has {end - at} bytes after its {rows} rows")


def _arrow(datatype: str) -> Any:
    return pa.from_numpy_dtype(np.dtype(_NUMBERS[datatype]))


def _kind(value: Any) -> str:
    names = {str: "text", bool: "truth value", int: "whole number", float: "fraction", list: "list", dict: "object"}
    return names.get(type(value), "null")
