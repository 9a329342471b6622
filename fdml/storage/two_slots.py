"""Two slots for one value: if the newer one is damaged, the older one is still there."""

from __future__ import annotations

import hashlib
import struct

from fdml.errors import StateCorrupt
from fdml.storage.disk import Disk

_HEADER = struct.Struct("<8sQQ32s")
_MAGIC = b"fdmlgen1"


class TwoSlots:
    """A value saved in two files by turns; `load` returns the newest undamaged one."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._newest = max((number for number, _ in self._valid()), default=0)

    def save(self, content: bytes) -> None:
        """Write a new value over the older of the two; durable on return."""
        number = self._newest + 1
        header = _HEADER.pack(_MAGIC, number, len(content), _digest(number, content))
        self._disk.replace(self._file(number), header + content)
        self._newest = number

    def load(self) -> bytes | None:
        """The newest undamaged value; None if none was ever saved."""
        found = self._valid()
        if found:
            return max(found)[1]
        if any(self._disk.read(self._file(number)) is not None for number in (0, 1)):
            raise StateCorrupt(f"both copies of {self._name!r} are damaged; give the run a new name at every side")
        return None

    def clear(self) -> None:
        """Remove both values."""
        for number in (0, 1):
            self._disk.remove(self._file(number))
        self._newest = 0

    def _file(self, number: int) -> str:
        return f"{self._name}.{number % 2}"

    def _valid(self) -> list[tuple[int, bytes]]:
        return [found for number in (0, 1) if (found := _open(self._disk.read(self._file(number)))) is not None]


def _digest(number: int, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32, key=struct.pack("<Q", number)).digest()


def _open(stored: bytes | None) -> tuple[int, bytes] | None:
    if stored is None or len(stored) < _HEADER.size:
        return None
    magic, number, size, digest = _HEADER.unpack_from(stored)
    content = stored[_HEADER.size :]
    if magic != _MAGIC or size != len(content) or digest != _digest(number, content):
        return None
    return number, content
