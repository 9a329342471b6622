"""A virtual disk that may fail in the middle of a write."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from io import BytesIO
from random import Random
from typing import BinaryIO


class Crashed(BaseException):
    """The process died here. Nothing in it may catch this but who started it."""


class VirtualDisk:
    """A disk that keeps all that was written, but may die in the middle of a write.

    An append is then there not at all, in part or whole. A file is replaced whole
    or not at all, as `Disk` promises; but where its name begins as one of `torn`,
    which have two generations, only part may take the place of what was there.

    A full disk does the same to writes, but the process lives and is told by an `OSError`.
    """

    def __init__(self, random: Random, torn: Sequence[str] = ()) -> None:
        self.files: dict[str, bytes] = {}
        self._random = random
        self._torn = tuple(torn)
        self._writes_left: int | None = None
        self._failures_left = 0

    def arm(self, writes: int) -> None:
        """Die in the write after so many more."""
        self._writes_left = writes

    def fill(self, failures: int) -> None:
        """Be full for so many writes; then there is room again."""
        self._failures_left = failures

    def disarm(self) -> None:
        """Live on; a process that died otherwise starts with a sound disk."""
        self._writes_left = None
        self._failures_left = 0

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        return self.files.get(name)

    def replace(self, name: str, content: bytes | memoryview) -> None:
        """Write a whole file."""
        fault, content = self._fault(), bytes(content)
        if fault is not None:
            arrived = self._arrived(content, tear=name in self.files and name.startswith(self._torn))
            if arrived is not None:
                self.files[name] = arrived
            raise fault
        self.files[name] = content

    def append(self, name: str, content: bytes, *, synced: bool = True) -> None:  # noqa: ARG002 (processes die, no power is cut)
        """Write at a file's end."""
        fault = self._fault()
        arrived = self._arrived(content, tear=True) if fault is not None else content
        self.files[name] = self.files.get(name, b"") + (arrived or b"")
        if fault is not None:
            raise fault

    def truncate(self, name: str, size: int) -> None:
        """Cut a file."""
        fault = self._fault()
        if fault is None or self._random.random() < 0.5:
            self.files[name] = self.files[name][:size]
        if fault is not None:
            raise fault

    def remove(self, name: str) -> None:
        """Take a file away."""
        fault = self._fault()
        if fault is None or self._random.random() < 0.5:
            self.files.pop(name, None)
        if fault is not None:
            raise fault

    def reader(self, name: str) -> BinaryIO | None:
        """The file as it is now."""
        return BytesIO(self.files[name]) if name in self.files else None

    def scratch(self) -> BinaryIO:
        """A new file that no crash outlives."""
        return BytesIO()

    def damage(self, name: str) -> None:
        """Turn one byte of a file over, as an old disk does."""
        content = bytearray(self.files[name])
        content[self._random.randrange(len(content))] ^= 0xFF
        self.files[name] = bytes(content)

    def _fault(self) -> BaseException | None:
        """What the next write ends with; None if it goes well."""
        if self._writes_left is not None:
            self._writes_left -= 1
            if self._writes_left < 0:
                self._writes_left = None
                return Crashed()
        if self._failures_left:
            self._failures_left -= 1
            return OSError(errno.ENOSPC, "no space left on the virtual disk")
        return None

    def _arrived(self, content: bytes, *, tear: bool) -> bytes | None:
        match self._random.choice(("nothing", "part", "all") if tear else ("nothing", "all")):
            case "nothing":
                return None
            case "part":
                return content[: self._random.randrange(len(content))]
            case _:
                return content
