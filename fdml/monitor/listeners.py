"""Listeners put together."""

from __future__ import annotations

from fdml.events import Event, Listener


def all_of(*listeners: Listener) -> Listener:
    """One listener that passes every event on to these, in their order."""

    def listen(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return listen
