"""How a party's endpoint is used, in a file of the party's folder: for its live page, which is another process."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fdml.storage.atomic import write_file

ENDPOINT = "endpoint.json"
_SAVE_SECONDS = 2.0
_STALE_SECONDS = 10.0
"""An endpoint that has written nothing for so long is not running."""


class Summarised(Protocol):
    """What counts requests."""

    def summary(self) -> dict[str, Any]:
        """Its figures, as JSON values."""
        ...


@contextmanager
def kept_counts(folder: Path, counts: Summarised, wall: Callable[[], float] = time.time) -> Iterator[None]:
    """Write the figures every other second for as long as the block runs, and remove them then.

    They are only for people: a disk that takes none of it stops no endpoint.
    """
    path, ended = folder / ENDPOINT, threading.Event()

    def write() -> None:
        with contextlib.suppress(OSError):
            write_file(path, (json.dumps({"at": wall(), **counts.summary()}) + "\n").encode())

    def run() -> None:
        write()
        while not ended.wait(_SAVE_SECONDS):
            write()

    thread = threading.Thread(target=run, name="endpoint counts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_SAVE_SECONDS)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def read_counts(folder: Path, wall: Callable[[], float] = time.time) -> dict[str, Any] | None:
    """The figures of an endpoint that is running; None where there is none."""
    try:
        found: dict[str, Any] = json.loads((folder / ENDPOINT).read_text(encoding="utf-8"))
        return found if wall() - float(found.pop("at")) <= _STALE_SECONDS else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
