"""Disks: folders of files that survive a crash. The simulator has a disk of its own that loses and tears writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from fdml.storage.atomic import OWNER_ONLY, make_private_folder, naming, sync, sync_data, write_all, write_file


class Disk(Protocol):
    """A folder of files. Every change is durable when its call returns, unless it is said not to be synced."""

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Write a whole file; after a crash it is the old one or the new one."""
        ...

    def append(self, name: str, content: bytes, *, synced: bool = True) -> None:
        """Write at a file's end; after a crash any first part of the content may be there.

        What is not synced is with the operating system: it outlives the process, but not a power cut.
        """
        ...

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to its first `size` bytes."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...


class FolderDisk:
    """A folder of the real file system. Files can be read by their owner only."""

    def __init__(self, folder: Path) -> None:
        make_private_folder(folder)
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
        """Write a whole file."""
        self._close(name)
        write_file(self._folder / name, content)

    def append(self, name: str, content: bytes, *, synced: bool = True) -> None:
        """Write at a file's end and, unless told not to, sync it."""
        with naming(self._folder / name):
            handle = self._appending.get(name)
            if handle is None:
                handle = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
                self._appending[name] = handle
                sync(self._folder)
            write_all(handle, content)
            if synced:
                sync_data(handle)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to its first `size` bytes."""
        self._close(name)
        handle = os.open(self._folder / name, os.O_WRONLY)
        try:
            os.ftruncate(handle, size)
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._close(name)
        (self._folder / name).unlink(missing_ok=True)
        sync(self._folder)

    def close(self) -> None:
        """Close all open files; the next write opens its own again."""
        for name in list(self._appending):
            self._close(name)

    def _close(self, name: str) -> None:
        handle = self._appending.pop(name, None)
        if handle is not None:
            os.close(handle)


class DiskPart:
    """Those files of a disk whose names begin alike."""

    def __init__(self, disk: Disk, prefix: str) -> None:
        self._disk = disk
        self._prefix = prefix

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        return self._disk.read(self._prefix + name)

    def replace(self, name: str, content: bytes) -> None:
        """Write a whole file."""
        self._disk.replace(self._prefix + name, content)

    def append(self, name: str, content: bytes, *, synced: bool = True) -> None:
        """Write at a file's end."""
        self._disk.append(self._prefix + name, content, synced=synced)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to its first `size` bytes."""
        self._disk.truncate(self._prefix + name, size)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._disk.remove(self._prefix + name)
