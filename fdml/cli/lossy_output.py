"""Standard output and standard error of a command whose work does not depend on who reads them."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Literal

Output = Literal["stdout", "stderr"]
OUTPUTS: tuple[Output, ...] = ("stdout", "stderr")
_LOST = (OSError, ValueError)
"""What a stream raises whose pipe is broken, whose disk is full, or that is closed."""


class LossyOutput:
    """One of the two outputs. What cannot be written is lost; the command goes on."""

    def __init__(self, name: Output) -> None:
        self._name = name

    @property
    def encoding(self) -> str:
        """Of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write, or lose it."""
        with contextlib.suppress(*_LOST):
            if self._stream is not None:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Let the text go, or lose it."""
        with contextlib.suppress(*_LOST):
            if self._stream is not None:
                self._stream.flush()

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        try:
            return self._stream is not None and bool(self._stream.isatty())
        except ValueError:  # it is closed
            return False

    def fileno(self) -> int:
        """Of the stream; an `OSError` where there is none, as streams do."""
        if self._stream is None:
            raise OSError(f"there is no {self._name}")
        return int(self._stream.fileno())

    def settle(self) -> None:
        """Before the process ends: what still cannot be written is given up, so that it does not end with an error."""
        if self._stream is None:
            return
        try:
            self._stream.flush()
        except _LOST:
            with contextlib.suppress(*_LOST):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)

    @property
    def _stream(self) -> Any:
        """The stream of now: tests and progress bars put others in its place. None where the process has none."""
        stream = getattr(sys, self._name)
        return getattr(stream, "rich_proxied_file", stream)
