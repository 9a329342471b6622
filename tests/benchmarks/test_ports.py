import contextlib
import socket

import pytest

from benchmarks.ports import reserved_port


@contextlib.contextmanager
def listening(port):
    """A socket that listens as gRPC's do."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        yield


def test_a_server_can_listen_at_a_reserved_port_again_and_again():
    with reserved_port() as port:
        for _ in range(3):
            with listening(port), socket.create_connection(("127.0.0.1", port), 5):
                pass


def test_nobody_listens_at_a_port_that_is_only_reserved():
    with reserved_port() as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_whoever_asks_for_any_port_gets_another():
    with reserved_port() as port, contextlib.ExitStack() as stack:
        others = []
        for _ in range(500):
            other = stack.enter_context(socket.socket())
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 0))
            others.append(other.getsockname()[1])
        assert port not in others
        assert len(set(others)) == len(others)


def test_two_servers_cannot_listen_at_once():
    with reserved_port() as port, listening(port), pytest.raises(OSError, match="in use"), listening(port):
        pass
