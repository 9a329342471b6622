"""Alignment messages on the server's disk: whole or not at all, and only for whom they were stored."""

from __future__ import annotations

import hashlib

from fdml.errors import StateCorrupt
from fdml.storage.disk import Disk

_MAGIC = b"fdmlblt1"
_HASH = 32
START_OVER = "give the run a new name at every side"
"""The way out where what is stored cannot be used: rows or keys that have changed are aligned by themselves."""


class MessageFiles:
    """Files with a checksum; those that were stored under another binding do not count."""

    def __init__(self, disk: Disk, binding: str) -> None:
        self._disk = disk
        self._binding = content_hash(binding.encode())

    def write(self, name: str, content: bytes) -> None:
        """Store a file; durable on return."""
        bound = self._binding + content
        self._disk.replace(name, _MAGIC + content_hash(bound) + bound)

    def read(self, name: str) -> bytes | None:
        """A file as it was stored; None if there is none."""
        stored = self._disk.read(name)
        if stored is None:
            return None
        checksum, bound = stored[len(_MAGIC) : len(_MAGIC) + _HASH], memoryview(stored)[len(_MAGIC) + _HASH :]
        if stored[: len(_MAGIC)] != _MAGIC or checksum != content_hash(bound):
            raise StateCorrupt(
                f"the message {name!r} is damaged; restore it, or remove the kept alignment with "
                f"`fdml forget FEDERATION.toml --alignments`"
            )
        return bytes(bound[_HASH:]) if bound[:_HASH] == self._binding else None


def content_hash(content: bytes | memoryview) -> bytes:
    """By which equal messages are known."""
    return hashlib.blake2b(content, digest_size=_HASH).digest()
