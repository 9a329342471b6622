"""Connections that say nothing: the kernel keeps them until their first byte, so that they cost the server nothing."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

_OWN_FILES = Path("/proc/self/fd")


def hold_silent(port: int, seconds: int) -> bool:
    """Have the kernel hold connections to a port of this process back until they say something, for so many seconds.

    gRPC sets up TLS for a connection as soon as it is there, which takes 60 kB. It does not show its listening
    socket, so that is looked for among this process's open files. False where the system cannot do this.
    """
    option: int | None = getattr(socket, "TCP_DEFER_ACCEPT", None)
    if option is None:
        return False
    found = list(_listening(port))
    for each in found:
        each.setsockopt(socket.IPPROTO_TCP, option, seconds)
        each.close()
    return bool(found)


def _listening(port: int) -> Iterator[socket.socket]:
    """The sockets of this process that listen at a port, each a copy to be closed."""
    names = sorted(_OWN_FILES.iterdir()) if _OWN_FILES.is_dir() else []
    for name in names:
        copy = _socket_of(int(name.name))
        if copy is not None and _listens(copy, port):
            yield copy
        elif copy is not None:
            copy.close()


def _socket_of(file: int) -> socket.socket | None:
    """A copy of an open file that is a socket of the internet; None if it is something else, or closed meanwhile."""
    try:
        if not stat.S_ISSOCK(os.fstat(file).st_mode):
            return None
        copied = os.dup(file)
    except OSError:
        return None
    found = socket.socket(fileno=copied)
    if found.family in (socket.AF_INET, socket.AF_INET6):
        return found
    found.close()
    return None


def _listens(line: socket.socket, port: int) -> bool:
    return bool(line.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)) and line.getsockname()[1] == port
