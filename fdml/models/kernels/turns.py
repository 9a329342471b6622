"""Turns among processes: one at a time does a thing of some name."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

_LONGEST_WAIT, _BETWEEN_LOOKS = 120.0, 0.02
"""Seconds. A form of a kernel takes up to ten; whoever has waited longer goes on without its turn."""


class Turns:
    """Who holds which name is written in the locks of one file; a process that ends lets go of all that it holds.

    A name is a byte of the file. A copy that is forked holds nothing.
    """

    def __init__(self, path: Path, longest_wait: float = _LONGEST_WAIT) -> None:
        self._path = path
        self._longest_wait = longest_wait
        self._handle: int | None = None

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Wait until no other process holds this name, and hold it; where no file can be written, go on at once."""
        handle, place = self._opened(), _place(name)
        held = handle is not None and self._waited(handle, place)
        try:
            yield
        finally:
            if held:
                fcntl.lockf(cast(int, handle), fcntl.LOCK_UN, 1, place)

    def _waited(self, handle: int, place: int) -> bool:
        """Whether this process has its turn in the end."""
        deadline = time.monotonic() + self._longest_wait
        while True:
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(_BETWEEN_LOOKS)
            except OSError:  # a file system without locks
                return False
            else:
                return True

    def _opened(self) -> int | None:
        """The file, kept open: if it were closed, all of this process's locks on it would end."""
        if self._handle is None:
            with suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._handle


def _place(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest())
