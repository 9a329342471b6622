"""A disk that forgets: for runs in one process, of which nothing has to last."""

from __future__ import annotations


class MemoryDisk:
    """Files as bytes in memory."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        return self._files.get(name)

    def replace(self, name: str, content: bytes) -> None:
        """Write a whole file."""
        self._files[name] = bytes(content)

    def append(self, name: str, content: bytes, *, synced: bool = True) -> None:  # noqa: ARG002 (it lives as long as the process)
        """Write at a file's end."""
        self._files[name] = self._files.get(name, b"") + content

    def truncate(self, name: str, size: int) -> None:
        """Cut a file."""
        self._files[name] = self._files[name][:size]

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._files.pop(name, None)
