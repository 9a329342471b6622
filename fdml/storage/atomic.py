"""The one way to write a file or a folder that must last.

New content is written beside the old, synced, and renamed over it; then the parent folder is synced. After a crash
at any moment the old content or the new is there, whole, unless the writer says that it need not be synced. One
process at a time may write the same name.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

OWNER_ONLY = 0o600
"""The mode of a file that only its owner can read: the default, as most files of a party are secret."""
PUBLIC = 0o666
"""The mode of any other file, less what the user's umask takes off."""


def write_file(path: Path, content: bytes | memoryview, *, mode: int = OWNER_ONLY, synced: bool = True) -> None:
    """Write a whole file; durable on return. It has its mode before its first byte.

    What is not `synced` is with the operating system: it outlives the process, but not a power cut.
    A symbolic link stays, and the file it leads to is replaced. A device or a pipe is written to, not replaced.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    beside = _partial(path)
    with naming(path):
        beside.unlink(missing_ok=True)  # of a crash; whoever has it open must not see the new content
        try:
            handle = _create(beside, mode)
            try:
                write_all(handle, content)
                if synced:
                    os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)  # is no longer there if all went well
        if synced:
            sync(path.parent)


def make_private_folder(folder: Path) -> None:
    """Make a folder that is not there yet, and its parents, for their owner only."""
    for each in (*reversed(folder.parents), folder):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def new_folder(folder: Path, *, mode: int = 0o700) -> Iterator[Path]:
    """A folder to fill, which takes the place of `folder` once the block ends; all files in it are synced before.

    If the block fails, `folder` stays as it was. Folders cannot be swapped in one step: after a crash in between, the
    old one is found by `whole_folder`.
    """
    folder = folder.resolve()
    beside, old = _partial(folder), _old(folder)
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(beside, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside.mkdir(mode)
    try:
        yield beside
        _sync_tree(beside)
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            os.rename(folder, old)
        os.rename(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # is no longer there if all went well
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def whole_folder(folder: Path) -> Path:
    """Where the content of a folder written by `new_folder` is: beside its place after a crash in mid swap."""
    old = _old(folder.resolve())
    return old if old.is_dir() and not folder.exists() else folder


def name_folder(made: Path, folder: Path) -> None:
    """Give a folder its name, unless there is one by now; the first one stays.

    Nothing is synced: this is for what can be made again, and is checked before it is used.
    """
    try:
        os.rename(made, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def remove_folder(folder: Path) -> bool:
    """Remove a folder written by `new_folder`, and what a crash has left of it beside; whether there was any.

    An old one that stayed would else take its place.
    """
    folder = folder.resolve()
    places = (_partial(folder), _old(folder), folder)
    there = [place for place in places if place.is_dir()]
    for place in there:
        shutil.rmtree(place)
    return bool(there)


def folder_identity(folder: Path) -> tuple[int, int]:
    """Another one whenever `new_folder` has replaced a folder; zeros where there is none.

    The folder's number alone would not do: a file system may give it out again at once.
    """
    try:
        found = whole_folder(folder).stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_ino, found.st_mtime_ns)


@contextmanager
def new_file(path: Path, *, mode: int = OWNER_ONLY) -> Iterator[BinaryIO]:
    """A new file inside a `new_folder`, for content that is written piece by piece."""
    with naming(path), os.fdopen(_create(path, mode), "wb") as file:
        yield file


@contextmanager
def extended_file(path: Path, *, mode: int = OWNER_ONLY) -> Iterator[BinaryIO]:
    """A file to write at the end of; nothing is synced."""
    with naming(path), os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode), "ab") as file:
        yield file


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the disk name the file, as the system does only where it opens one."""
    try:
        yield
    except OSError as error:
        number = errno.ENOSPC if error.errno is None else error.errno  # numpy tells only that less was written
        raise OSError(number, error.strerror or str(error), str(path)) from None


def sync_data(handle: int) -> None:
    """Bring a file's content to disk, and of its metadata only the size, where the system can tell them apart."""
    getattr(os, "fdatasync", os.fsync)(handle)  # macOS has no fdatasync


def sync(path: Path) -> None:
    """Bring a file's content, or a folder's list of names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(handle: int, content: bytes | memoryview) -> None:
    """Write all bytes, however few the system takes at a time."""
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]


def _create(path: Path, mode: int) -> int:
    """A file that was not there before: neither someone's link nor a file that someone has open."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _sync_tree(folder: Path) -> None:
    for inner, _, files in os.walk(folder, topdown=False):
        for name in files:
            sync(Path(inner, name))
        sync(Path(inner))
