"""Spans of requests, for whoever traces them. They say how long and how many, never an id, a score or a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Value = str | int | float | bool


class OpenSpan(Protocol):
    """A span that goes on."""

    def set_attributes(self, attributes: Mapping[str, Value]) -> None:
        """Say more of it."""
        ...


Spans = Callable[[str], AbstractContextManager[OpenSpan]]
"""Opens a span of this name, inside the one that is open."""


class _NoSpan:
    def set_attributes(self, attributes: Mapping[str, Value]) -> None:
        pass


def no_spans(_: str) -> AbstractContextManager[OpenSpan]:
    """Where nobody traces."""
    return nullcontext(_NoSpan())
