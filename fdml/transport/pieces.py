"""Messages of any length as pieces of a bounded size, and back: how long a message gets is checked as it comes.

A piece of exactly `PIECE` bytes is followed by another; a shorter one, which may be empty, is the last.
"""

from __future__ import annotations

from collections.abc import Iterator

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.limits import PIECE


def pieces(raw: bytes) -> Iterator[bytes]:
    """A message as the pieces it travels in; a short one, as nearly all are, is its own only piece."""
    return iter((raw,)) if len(raw) < PIECE else _cut(raw)


def _cut(raw: bytes) -> Iterator[bytes]:
    view = memoryview(raw)
    for start in range(0, len(raw) + 1, PIECE):
        yield bytes(view[start : start + PIECE])


class Assembly:
    """Puts pieces together again."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0
        """Bytes of the message that is under way."""

    def add(self, piece: bytes) -> bytes | None:
        """The whole message if this was its last piece."""
        if not self._parts and len(piece) < PIECE:
            return piece
        self._parts.append(piece)
        self.size += len(piece)
        if len(piece) == PIECE:
            return None
        whole = b"".join(self._parts)
        self._parts, self.size = [], 0
        return whole


def check_length(size: int, most: int, sender: str) -> None:
    """Refuse a message of which more bytes have come than the run has use for."""
    if size > most:
        raise MessageRefused(
            f"{sender} sent a message of {size} bytes or more; here the largest has {most}", Refusal.TOO_LARGE
        )
