"""A lock on a folder: one process at a time writes to it. The lock ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fdml.errors import SettingsError
from fdml.storage.atomic import OWNER_ONLY, make_private_folder, naming

LOCK = "lock"


@contextmanager
def exclusive_lock(folder: Path, holder: str) -> Iterator[None]:
    """Hold the folder's lock, or raise at once; `holder` is what a process that holds it is: "server of this run"."""
    handle = _open(folder)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                f"another {holder} is running{_process(handle)}: {str(folder)!r} is in use; wait for its end, or end it"
            ) from None
        with suppress(OSError):  # the number is only for people
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


@contextmanager
def shared_turns(folder: Path) -> Iterator[None]:
    """Wait for the folder's lock and hold it: for changes of a file that several processes make in turns."""
    handle = _open(folder)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether a process holds the folder's lock now."""
    if not (folder / LOCK).exists():
        return False
    handle = _open(folder)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _open(folder: Path) -> int:
    make_private_folder(folder)
    with naming(folder / LOCK):
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, OWNER_ONLY)


def _process(handle: int) -> str:
    number = os.pread(handle, 20, 0)
    return f" (process {int(number)})" if number.isdigit() else ""
