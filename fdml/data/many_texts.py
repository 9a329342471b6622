"""Texts of more rows than memory holds: in files that the system maps, and compared a part at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.storage.disk import Disk

MANY = 2**22
"""Rows from which on texts are kept in files, and compared in parts."""
_PART_ROWS = 2**20
_CHUNK = 2**16
_LONGEST = 64
"""Characters of a text that its hash is made of; beyond that equal beginnings fall together, which is no error."""


def kept_texts(parts: Iterable[Any], disk: Disk | None) -> Any:
    """One large_string array of these arrays without nulls; mapped from two scratch files if there is a disk."""
    if disk is None:
        return pa.concat_arrays([pa.array([], pa.large_string()), *parts])
    bounds, texts, end, count = disk.scratch(), disk.scratch(), 0, 0
    bounds.write(np.zeros(1, np.int64).tobytes())
    for part in parts:
        offsets, content = text_bytes(part)
        bounds.write((offsets[1:] + end).tobytes())
        texts.write(content)
        end, count = end + len(content), count + len(part)
    return pa.Array.from_buffers(pa.large_string(), count, [None, _mapped(bounds), _mapped(texts)])


def text_bytes(texts: Any) -> tuple[NDArray[np.int64], memoryview]:
    """Where each text of a large_string array begins, the last number where all end, and their bytes."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = memoryview(b"") if data is None else memoryview(data)[bounds[0] : bounds[-1]]
    return bounds - bounds[0], content


def _mapped(file: BinaryIO) -> Any:
    """The content of a scratch file as a buffer; the map keeps the file."""
    with file:
        size = file.tell()
        file.seek(0)
        try:
            file.fileno()
        except OSError:  # a file in memory
            return pa.py_buffer(file.read())
        return pa.py_buffer(np.memmap(file, np.uint8, "r", shape=(size,)) if size else b"")


def duplicates(texts: Any, part_rows: int = _PART_ROWS) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which texts are in an earlier row too, and which are in one row only; many are compared in parts."""
    if len(texts) <= part_rows:
        return _in_memory(texts)
    parts = -(-len(texts) // part_rows)
    of_part = np.empty(len(texts), np.int32)
    for begin in range(0, len(texts), _CHUNK):
        of_part[begin : begin + _CHUNK] = _hashes(texts[begin : begin + _CHUNK]) % np.uint64(parts)
    again, single = np.zeros(len(texts), bool), np.zeros(len(texts), bool)
    for number in range(parts):
        rows = np.flatnonzero(of_part == number)
        again[rows], single[rows] = _in_memory(texts.take(pa.array(rows)))
    return again, single


def _in_memory(texts: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Codes are given in the order in which texts first come, so a new text raises the highest code."""
    codes = texts.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    highest = np.maximum.accumulate(codes)
    again = np.concatenate([[False], highest[1:] == highest[:-1]])[: len(codes)]
    return again, np.bincount(codes)[codes] == 1 if len(codes) else again


def _hashes(texts: Any) -> NDArray[np.uint64]:
    """A number for each text, the same for equal ones."""
    bounds, content = text_bytes(texts)
    lengths = np.diff(bounds)
    found = lengths.astype(np.uint64)
    characters = np.frombuffer(content, np.uint8)
    with np.errstate(over="ignore"):
        for place in range(min(int(lengths.max(initial=0)), _LONGEST)):
            rows = np.flatnonzero(lengths > place)
            found[rows] = (found[rows] ^ characters[bounds[rows] + place]) * np.uint64(0x100000001B3)
        return found ^ (found >> np.uint64(32))
