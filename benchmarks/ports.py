"""Ports for servers that are started, killed and started again at the same address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of loopback that is ours while the block runs.

    The socket that holds it never listens. Linux gives its port to nobody who asks for any free one, and lets a
    server bind it by number, as both sockets have SO_REUSEADDR (gRPC sets it).
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
