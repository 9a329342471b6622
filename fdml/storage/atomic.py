"""One way to write a file that must last: whole or not at all, and durable on return."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file: write beside it, sync, rename, sync the folder. It has its mode from the first byte."""
    beside = path.with_name(f".{path.name}.partial")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)
        file.write(content)
        file.flush()
        os.fsync(handle)
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
