"""Files that survive a crash. The simulator brings a disk of its own that loses and tears writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

_MODE = 0o600


class Disk(Protocol):
    """A folder of files. Only what was replaced, or appended and synced, is sure to be there after a crash."""

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Write a file all or not at all; durable on return."""
        ...

    def append(self, name: str, content: bytes) -> None:
        """Write at a file's end; durable on return."""
        ...

    def truncate(self, name: str, size: int) -> None:
        """Cut a file; durable on return."""
        ...

    def remove(self, name: str) -> None:
        """Take a file away, if it is there."""
        ...


class FolderDisk:
    """A folder of the real file system. Files can be read by their owner only."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._folder = folder
        self._appending: dict[str, int] = {}

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, name: str, content: bytes) -> None:
        """Write beside, sync, rename, sync the folder."""
        self._close(name)
        beside = self._folder / f".{name}.partial"
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        try:
            os.fchmod(handle, _MODE)
            _write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        beside.replace(self._folder / name)
        self._sync_folder()

    def append(self, name: str, content: bytes) -> None:
        """Write at a file's end and sync it."""
        handle = self._appending.get(name)
        if handle is None:
            handle = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _MODE)
            self._appending[name] = handle
            self._sync_folder()
        _write_all(handle, content)
        os.fdatasync(handle)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file."""
        self._close(name)
        handle = os.open(self._folder / name, os.O_WRONLY)
        try:
            os.ftruncate(handle, size)
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, name: str) -> None:
        """Take a file away, if it is there."""
        self._close(name)
        (self._folder / name).unlink(missing_ok=True)
        self._sync_folder()

    def _close(self, name: str) -> None:
        handle = self._appending.pop(name, None)
        if handle is not None:
            os.close(handle)

    def _sync_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
