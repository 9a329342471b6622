"""What travels between a party and its own workers: a few facts as JSON, and arrays as their bytes. No pickle."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdml.errors import StateCorrupt

_LENGTH = struct.Struct("<Q")
_KINDS = "biufS"
"""Of arrays that are nothing but their bytes."""


class Frame(NamedTuple):
    """Facts that JSON can hold, and arrays by name."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = {}

    def under(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays whose names begin with `name/`, without it."""
        start = f"{name}/"
        return {key.removeprefix(start): array for key, array in self.arrays.items() if key.startswith(start)}


def pieces(frame: Frame) -> Iterator[bytes | memoryview]:
    """The bytes of a frame: the length of its head, the head, then each array."""
    arrays = {name: np.ascontiguousarray(array) for name, array in frame.arrays.items()}
    shapes = [[name, array.dtype.str, list(np.shape(frame.arrays[name]))] for name, array in arrays.items()]
    head = json.dumps({"facts": dict(frame.facts), "arrays": shapes}).encode()
    yield _LENGTH.pack(len(head)) + head
    for array in arrays.values():
        if array.size:
            yield array.reshape(-1).view(np.uint8).data


def to_bytes(frame: Frame) -> bytes:
    """A frame in one piece."""
    return b"".join(pieces(frame))


def from_bytes(content: bytes) -> Frame:
    """What `to_bytes` was given."""
    frame = read_frame(io.BytesIO(content))
    if frame is None:
        raise StateCorrupt(f"a worker sent {len(content)} bytes that are no whole frame")
    return frame


def write_frame(file: IO[bytes], frame: Frame) -> None:
    """Write a frame to a pipe."""
    for piece in pieces(frame):
        file.write(piece)
    file.flush()


def read_frame(file: IO[bytes]) -> Frame | None:
    """The next frame of a pipe; None where it has ended before one, or within it."""
    length = _exactly(file, _LENGTH.size)
    head = None if length is None else _exactly(file, _LENGTH.unpack(length)[0])
    if head is None:
        return None
    known = json.loads(bytes(head))
    arrays = {}
    for name, kind, shape in known["arrays"]:
        dtype = np.dtype(kind)
        if dtype.kind not in _KINDS:
            raise StateCorrupt(f"a worker sent an array {name!r} of type {kind!r}, which is not plain numbers")
        content = _exactly(file, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        if content is None:
            return None
        arrays[name] = np.frombuffer(content, dtype).reshape(shape)
    return Frame(known["facts"], arrays)


def _exactly(file: IO[bytes], size: int) -> bytearray | None:
    content = bytearray(size)
    done, view = 0, memoryview(content)
    while done < size:
        count = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            return None
        done += count
    return content
