"""A file that is written at its end, again and again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fdml.storage.atomic import OWNER_ONLY, naming, sync_data, write_all

_LONG = 64 * 2**10
"""Bytes of a file from which on room is made: most files stay shorter."""
_LARGE = 32 * 2**10
"""An append of more bytes makes no room: what it takes is the writing, not the growing."""


class AppendedFile:
    """Appends to a file that it keeps open; with `ahead`, so many bytes of room are made at a time.

    A file system writes down how long a file is before an append is durable. Where the file is long enough already,
    only the bytes are written, which takes less than half as long. The room is zeros, cut off when the file is closed;
    a crash leaves them, so that who reads such a file must know its end: as a `Journal` does.
    """

    def __init__(self, path: Path, ahead: int = 0) -> None:
        self._path = path
        self._ahead = ahead
        with naming(path):
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | (0 if ahead else os.O_APPEND), OWNER_ONLY)
        self._end = os.lseek(self._handle, 0, os.SEEK_END) if ahead else 0
        self._room = self._end

    def append(self, content: bytes, *, synced: bool) -> None:
        """Write at the end and, unless told not to, sync it."""
        with naming(self._path):
            if self._ahead:
                self._make_room(len(content))
            write_all(self._handle, content)
            self._end += len(content)
            if synced:
                sync_data(self._handle)

    def close(self) -> None:
        """Close the file, without any room that is left."""
        with contextlib.suppress(OSError):
            if self._room > self._end:
                os.ftruncate(self._handle, self._end)
        os.close(self._handle)

    def _make_room(self, size: int) -> None:
        if self._end < _LONG or size > _LARGE or self._end + size <= self._room:
            return
        with contextlib.suppress(OSError):  # on a full disk the append itself fails, or just fits
            self._room = self._end + size + os.pwrite(self._handle, bytes(self._ahead), self._end + size)
