"""A disk for tests that lives in memory and can be cut off at any write."""

from __future__ import annotations

from io import BytesIO


class PowerCut(Exception):
    """The disk is gone in the middle of a write."""


class MemoryDisk:
    """Keeps files as bytes. `writes_left` counts down to a power cut; an append cut short leaves `torn` bytes."""

    def __init__(self, files=None, *, writes_left=None, torn=0):
        self.files = dict(files or {})
        self.writes_left = writes_left
        self.torn = torn
        self.writes = 0

    def copy(self):
        """The same files on another disk, without a power cut to come."""
        return MemoryDisk(self.files)

    def read(self, name):
        return self.files.get(name)

    def replace(self, name, content):
        self._spend()
        self.files[name] = bytes(content)

    def append(self, name, content, *, synced=True):
        before = self.files.get(name, b"")
        try:
            self._spend()
        except PowerCut:
            if self.torn:
                self.files[name] = before + content[: self.torn]
            raise
        self.files[name] = before + content

    def reader(self, name):
        return BytesIO(self.files[name]) if name in self.files else None

    def scratch(self):
        return BytesIO()

    def truncate(self, name, size):
        self._spend()
        self.files[name] = self.files[name][:size]

    def remove(self, name):
        self._spend()
        self.files.pop(name, None)

    def _spend(self):
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise PowerCut
            self.writes_left -= 1
        self.writes += 1
