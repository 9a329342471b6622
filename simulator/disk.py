"""A virtual disk that may fail in the middle of a write."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


class Crashed(BaseException):
    """The process died here. Nothing in it may catch this but who started it."""


class VirtualDisk:
    """A disk that keeps all that was written, but may die in the middle of a write.

    An append is then there not at all, in part or whole. A file is replaced whole
    or not at all, as `Disk` promises; but where its name begins as one of `torn`,
    which have two generations, only part may take the place of what was there.
    """

    def __init__(self, random: Random, torn: Sequence[str] = ()) -> None:
        self.files: dict[str, bytes] = {}
        self._random = random
        self._torn = tuple(torn)
        self._writes_left: int | None = None

    def arm(self, writes: int) -> None:
        """Die in the write after so many more."""
        self._writes_left = writes

    def disarm(self) -> None:
        """Live on; a process that died otherwise starts with a sound disk."""
        self._writes_left = None

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        return self.files.get(name)

    def replace(self, name: str, content: bytes) -> None:
        """Write a whole file."""
        if self._dies():
            arrived = self._arrived(content, tear=name in self.files and name.startswith(self._torn))
            if arrived is not None:
                self.files[name] = arrived
            raise Crashed
        self.files[name] = content

    def append(self, name: str, content: bytes, *, synced: bool = True) -> None:  # noqa: ARG002 (processes die, no power is cut)
        """Write at a file's end."""
        dies = self._dies()
        arrived = self._arrived(content, tear=True) if dies else content
        self.files[name] = self.files.get(name, b"") + (arrived or b"")
        if dies:
            raise Crashed

    def truncate(self, name: str, size: int) -> None:
        """Cut a file."""
        dies = self._dies()
        if not dies or self._random.random() < 0.5:
            self.files[name] = self.files[name][:size]
        if dies:
            raise Crashed

    def remove(self, name: str) -> None:
        """Take a file away."""
        dies = self._dies()
        if not dies or self._random.random() < 0.5:
            self.files.pop(name, None)
        if dies:
            raise Crashed

    def damage(self, name: str) -> None:
        """Turn one byte of a file over, as an old disk does."""
        content = bytearray(self.files[name])
        content[self._random.randrange(len(content))] ^= 0xFF
        self.files[name] = bytes(content)

    def _dies(self) -> bool:
        if self._writes_left is None:
            return False
        self._writes_left -= 1
        if self._writes_left >= 0:
            return False
        self._writes_left = None
        return True

    def _arrived(self, content: bytes, *, tear: bool) -> bytes | None:
        match self._random.choice(("nothing", "part", "all") if tear else ("nothing", "all")):
            case "nothing":
                return None
            case "part":
                return content[: self._random.randrange(len(content))]
            case _:
                return content
