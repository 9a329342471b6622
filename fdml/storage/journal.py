"""Journal: a log on disk of records in the order in which they were acted on."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator, Sequence

from fdml.errors import StateCorrupt
from fdml.storage.disk import Disk

_FRAME = struct.Struct("<4sIII")
_MAGIC = b"\xfdJ\r\n"
_LENGTH = struct.Struct("<I")


class Journal:
    """Records in groups, each with a checksum. After a crash a group is there whole or not at all.

    A write that fails, as on a full disk, may leave part of a group. It is cut off before anything else is written:
    what followed it could not be read again. While it cannot be cut off, the log takes nothing more.

    Groups of a journal that is not `synced` outlive the process, but not a power cut: after one, what follows the
    first group that is not whole is cut off.
    """

    def __init__(self, disk: Disk, name: str, *, synced: bool = True) -> None:
        self._disk = disk
        self._name = name
        self._synced = synced
        self.size = 0
        self._is_closed = False

    def replay(self) -> Iterator[bytes]:
        """All records in order. An incomplete last group is cut off: a crash tore it before it was acted on."""
        stored = self._disk.read(self._name) or b""
        at = 0
        while (group := _group_at(stored, at)) is not None:
            yield from _records(group)
            at += _FRAME.size + len(group)
        if at < len(stored):
            if self._synced:
                self._refuse_damage(stored, at)
            self._disk.truncate(self._name, at)
        self.size = at

    def append(self, records: Sequence[bytes]) -> None:
        """Add records as one group; durable on return, if it is synced. If the disk raises, the log is as it was."""
        self._check_open()
        framed = _framed(records, self.size)
        try:
            self._disk.append(self._name, framed, synced=self._synced)
        except OSError:
            self._cut_back()
            raise
        self.size += len(framed)

    def restart(self, records: Sequence[bytes]) -> None:
        """Replace the whole log by one group, in one step. If the disk raises, the log takes nothing more."""
        self._check_open()
        framed = _framed(records, 0)
        self._is_closed = True  # until it is known that the new log is there
        self._disk.replace(self._name, framed)
        self.size = len(framed)
        self._is_closed = False

    def _cut_back(self) -> None:
        """Take off what a failed write has left behind the last whole group."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            if self.size:
                self._disk.truncate(self._name, self.size)
            else:
                self._disk.remove(self._name)
            self._is_closed = False

    def _check_open(self) -> None:
        if self._is_closed:
            raise StateCorrupt(
                f"the log {self._name!r} could not be written and is closed; make room, then run the same command again"
            )

    def _refuse_damage(self, stored: bytes, at: int) -> None:
        """Raise if a good group follows the bad one: a crash tears only the last group, so records are lost."""
        behind = stored.find(_MAGIC, at + 1)
        while behind >= 0 and _length_at(stored, behind) is None:
            behind = stored.find(_MAGIC, behind + 1)
        if behind >= 0:
            raise StateCorrupt(
                f"the log {self._name!r} is damaged at byte {at}; restore it, or give the run a new name at every side"
            )


def _framed(records: Sequence[bytes], at: int) -> bytes:
    parts = [part for record in records for part in (_LENGTH.pack(len(record)), record)]
    length, checksum = sum(map(len, parts)), 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([_FRAME.pack(_MAGIC, length, checksum, _header_sum(at, length, checksum)), *parts])


def _header_sum(at: int, length: int, checksum: int) -> int:
    """A checksum over the group's position too, so that no content of a group can look like a group."""
    return zlib.crc32(struct.pack("<QII", at, length, checksum))


def _length_at(stored: bytes, at: int) -> int | None:
    """The length of the group that begins here; None if none does."""
    if at + _FRAME.size > len(stored):
        return None
    magic, length, checksum, header = _FRAME.unpack_from(stored, at)
    return length if magic == _MAGIC and header == _header_sum(at, length, checksum) else None


def _group_at(stored: bytes, at: int) -> bytes | None:
    length = _length_at(stored, at)
    if length is None:
        return None
    group = stored[at + _FRAME.size : at + _FRAME.size + length]
    _, _, checksum, _ = _FRAME.unpack_from(stored, at)
    return group if len(group) == length and zlib.crc32(group) == checksum else None


def _records(group: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(group):
        (length,) = _LENGTH.unpack_from(group, at)
        yield group[at + _LENGTH.size : at + _LENGTH.size + length]
        at += _LENGTH.size + length
