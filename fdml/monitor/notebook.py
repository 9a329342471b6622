"""Progress in a notebook: one line that is replaced in place. It needs nothing but the notebook's own IPython."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

_SHOWN_SECONDS = 0.1
"""The shortest time between two replacements; the last one is always shown."""


class NotebookProgress:
    """A bar with a title, a count and a note. Notebooks show its HTML, other places its text."""

    def __init__(self, total: int, title: str, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._title = title
        self._unit = unit
        self._clock = clock
        self._started = self._shown = clock()
        self._done = 0
        self._note = ""
        self._handle: Any = import_module("IPython.display").display(self, display_id=True)

    def move_to(self, done: int, note: str = "") -> None:
        """Move the bar."""
        self._done, self._note = done, note
        self._show(now=done >= self._total)

    def expect(self, total: int) -> None:
        """The bar is full after so many units."""
        self._total = total

    def remark(self, note: str) -> None:
        """Replace the text beside the bar."""
        self._note = note
        self._show(now=True)

    def close(self) -> None:
        """Show what was reached."""
        self._show(now=True)

    def _show(self, *, now: bool) -> None:
        at = self._clock()
        if now or at - self._shown >= _SHOWN_SECONDS:
            self._shown = at
            self._handle.update(self)

    def __repr__(self) -> str:
        more = f", {self._note}" if self._note else ""
        return f"{self._title}: {self._done} of {self._total} {self._unit}, {self._shown - self._started:.0f} s{more}"

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self._done}" max="{self._total}"></progress>'
        return f"{bar} {html.escape(repr(self))}"
