"""A disk that forgets: for runs in one process, of which nothing has to last."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import BinaryIO


class MemoryDisk:
    """Files as bytes in memory."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.files = dict(files or {})

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        return self.files.get(name)

    def replace(self, name: str, content: bytes | memoryview) -> None:
        """Write a whole file."""
        self.files[name] = bytes(content)

    def append(self, name: str, content: bytes, *, synced: bool = True) -> None:  # noqa: ARG002 (it lives as long as the process)
        """Write at a file's end."""
        self.files[name] = self.files.get(name, b"") + content

    def truncate(self, name: str, size: int) -> None:
        """Cut a file."""
        self.files[name] = self.files[name][:size]

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self.files.pop(name, None)

    def reader(self, name: str) -> BinaryIO | None:
        """The file as it is now."""
        return BytesIO(self.files[name]) if name in self.files else None

    def scratch(self) -> BinaryIO:
        """A new file in memory."""
        return BytesIO()
