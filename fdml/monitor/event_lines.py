"""Events from one process to the one that started it: the few that a view of the whole run needs, a JSON line each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fdml.events import Evaluated, Event, Finished, Listener, PartyProgress
from fdml.monitor.json_log import JsonLog

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (PartyProgress, Evaluated, Finished)}
_TUPLES = ("waits_for",)


def is_told(event: Event) -> bool:
    """Whether an event is handed on: where parties are, who has finished, and figures where they are known."""
    return isinstance(event, PartyProgress | Finished) or (isinstance(event, Evaluated) and event.test_loss is not None)


def told_to(log: JsonLog) -> Listener:
    """A listener that writes what is handed on."""
    return lambda event: log(event) if is_told(event) else None


class EventLines:
    """Reads the events that another process has written by now; lines that are none are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def new(self) -> list[Event]:
        """The events since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                found = file.read()
        except OSError:  # it has not begun
            return []
        whole = found[: found.rfind(b"\n") + 1]
        self._at += len(whole)
        return [event for line in whole.splitlines() if (event := _read(line)) is not None]


def _read(line: bytes) -> Event | None:
    try:
        fields: dict[str, Any] = json.loads(line)
        kind = _KINDS[fields.pop("kind")]
        del fields["time"]
        values = {name: tuple(value) if name in _TUPLES else value for name, value in fields.items()}
        event: Event = kind(**values)
        return event
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
