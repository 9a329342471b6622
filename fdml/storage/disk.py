"""Disks: folders of files that survive a crash. The simulator has a disk of its own that loses and tears writes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from fdml.storage.appended_file import AppendedFile
from fdml.storage.atomic import make_private_folder, sync, write_file


class Disk(Protocol):
    """A folder of files. Every change is durable when its call returns, unless it is said not to be synced."""

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        ...

    def replace(self, name: str, content: bytes | memoryview) -> None:
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

    def scratch(self) -> BinaryIO:
        """A new file without a name, to write and read; it is gone once it is closed."""
        ...

    def reader(self, name: str) -> BinaryIO | None:
        """The file as it is now, to read in parts; None if there is none."""
        ...


class FolderDisk:
    """A folder of the real file system. Files can be read by their owner only."""

    def __init__(self, folder: Path, *, ahead: int = 0) -> None:
        """`ahead` is how many bytes of room a file that is appended to has at a time; see `AppendedFile`."""
        make_private_folder(folder)
        folder.chmod(0o700)
        self._folder = folder
        self._ahead = ahead
        self._appending: dict[str, AppendedFile] = {}

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, name: str, content: bytes | memoryview) -> None:
        """Write a whole file."""
        self._close(name)
        write_file(self._folder / name, content)

    def append(self, name: str, content: bytes, *, synced: bool = True) -> None:
        """Write at a file's end and, unless told not to, sync it."""
        file = self._appending.get(name)
        if file is None:
            file = self._appending[name] = AppendedFile(self._folder / name, self._ahead)
            sync(self._folder)
        file.append(content, synced=synced)

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

    def reader(self, name: str) -> BinaryIO | None:
        """The file as it is now; what replaces it later is another."""
        try:
            return (self._folder / name).open("rb")
        except FileNotFoundError:
            return None

    def scratch(self) -> BinaryIO:
        """A new file without a name in this folder."""
        return cast(BinaryIO, tempfile.TemporaryFile(dir=self._folder))

    def close(self) -> None:
        """Close all open files; the next write opens its own again."""
        for name in list(self._appending):
            self._close(name)

    def _close(self, name: str) -> None:
        file = self._appending.pop(name, None)
        if file is not None:
            file.close()


class DiskPart:
    """Those files of a disk whose names begin alike."""

    def __init__(self, disk: Disk, prefix: str) -> None:
        self._disk = disk
        self._prefix = prefix

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        return self._disk.read(self._prefix + name)

    def replace(self, name: str, content: bytes | memoryview) -> None:
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

    def scratch(self) -> BinaryIO:
        """A new file without a name."""
        return self._disk.scratch()

    def reader(self, name: str) -> BinaryIO | None:
        """The file as it is now."""
        return self._disk.reader(self._prefix + name)
