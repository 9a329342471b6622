"""The calls that storage makes of the operating system: recorded in order, and cut off at any of them."""

from __future__ import annotations

import os

import pytest

from tests.storage.memory_disk import PowerCut

WATCHED = ("open", "write", "fsync", "fdatasync", "ftruncate", "replace", "rename", "unlink", "mkdir", "rmdir")


class SystemCalls(list):
    """Names of the calls made. After `calls_left` more the power is gone: that call and all later ones raise."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.calls_left = None
        self.details = []
        """Of each call: its name, its first argument, and the mode that an open was given."""
        for name in WATCHED:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def of(self, *names):
        """The calls of these names, in order."""
        return [name for name in self if name in names]

    def opened(self):
        """The names of the files created, and their modes."""
        return [
            (os.path.basename(path), mode)
            for name, path, flags, mode in self.details
            if name == "open" and flags & os.O_CREAT
        ]

    def _watched(self, name, real):
        def call(*args, **kwargs):
            if self.calls_left is not None:
                if self.calls_left <= 0:
                    raise PowerCut(name)
                self.calls_left -= 1
            self.append(name)
            flags, mode = (*args[1:3], *(0,) * 2)[:2] if name == "open" else (0, 0)
            self.details.append((name, args[0], flags, mode))
            return real(*args, **kwargs)

        return call


def crash_at_every_call(act, prepare, check):
    """Let `act` die at its first system call, then at its second, and so on until it ends; returns how often it died.

    `prepare` sets everything up anew, `check` looks at what the crash has left; neither is cut off.
    """
    for calls in range(1000):
        given = prepare()
        with pytest.MonkeyPatch.context() as monkeypatch:
            system = SystemCalls(monkeypatch)
            system.calls_left = calls
            try:
                act(given)
            except PowerCut:
                ended = False
            else:
                ended = True
        check(given, ended=ended)
        if ended:
            return calls
    raise AssertionError("it never ended")
