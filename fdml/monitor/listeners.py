"""Listeners put together. A listener takes every kind of event, in any order, from any thread."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from fdml.events import Event, Listener, OfRun, Remark


def all_of(*listeners: Listener) -> Listener:
    """One listener that hands every event to each of these, in their order."""
    hearers: dict[type[Event], tuple[Listener, ...]] = {}

    def listen(event: Event) -> None:
        kind = type(event)
        if kind not in hearers:
            hearers[kind] = tuple(each for each in listeners if _hears(each, kind))
        for listener in hearers[kind]:
            listener(event)

    return listen


def _hears(listener: Listener, kind: type[Event]) -> bool:
    """Whether a listener does anything with events of a kind: it may say of which in `kinds`, and else of all."""
    kinds: Collection[type[Event]] | None = getattr(listener, "kinds", None)
    return kinds is None or kind in kinds


def of_run(run: str, listener: Listener) -> Listener:
    """A listener for one of many runs, whose name it puts on every event that has a place for it."""
    return lambda event: listener(replace(event, run=run) if isinstance(event, OfRun) else event)


def ignore_events(_: Event) -> None:
    """A listener for callers that want no events."""


def remarks_of(party: str, listener: Listener) -> Callable[[str], None]:
    """A function that hands sentences to a listener as remarks of this party."""
    return lambda text: listener(Remark(party, text))
