"""A log of events for programs: one JSON object per line."""

from __future__ import annotations

import json
import math
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from fdml.errors import SettingsError, StateCorrupt
from fdml.events import Event

_MODE = 0o600


class JsonLog:
    """Appends every event to a file as `{"kind": ..., "time": ..., <fields of the event>}`.

    `time` is in seconds since 1970. A later start of the same run appends to the same file. The log holds the label
    party's figures, so only the owner may read it.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._file = _open(path)

    def __enter__(self) -> JsonLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, event: Event) -> None:
        """Write one line; it is with the operating system on return."""
        fields = {name: plain_values(value) for name, value in asdict(event).items()}
        with self._lock:
            if self._file.closed:
                return
            line = json.dumps({"kind": type(event).__name__, "time": self._clock(), **_renamed(fields)})
            try:
                self._file.write(line + "\n")
                self._file.flush()
            except OSError as error:
                raise StateCorrupt(
                    f"cannot write to the log {str(self._path)!r} ({error}); make room or leave --log out, "
                    f"then run the same command again"
                ) from None

    def close(self) -> None:
        """Close the file; events that come later are dropped."""
        with self._lock:
            self._file.close()


def _open(path: Path) -> TextIO:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _MODE)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            os.fchmod(handle, _MODE)
    except OSError as error:
        raise SettingsError(
            f"cannot write the log {str(path)!r} ({error.strerror}); choose another file with --log"
        ) from None
    return os.fdopen(handle, "a", encoding="utf-8")


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """`Refused` has a field named kind, which is the name of every line's first field; one run alone needs no name."""
    kept = {name: value for name, value in fields.items() if name != "run" or value}
    return {"refusal" if name == "kind" else name: value for name, value in kept.items()}


def plain_values(value: Any) -> Any:
    """JSON has no word for infinite numbers and nan."""
    if isinstance(value, dict):
        return {name: plain_values(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
