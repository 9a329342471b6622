"""Finding 10 on real sockets: who says nothing, or begins a handshake and stops, takes little of the server."""

import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fdml.protocol.messages import Welcome
from fdml.transport import grpc_listening
from fdml.transport.silent_connections import hold_silent
from tests.server.sessions import hello
from tests.transport.served import SECONDS, until
from tests.transport.test_grpc_channel import channel_to, receive
from tests.transport.test_limits import AUTHORITY, serve

FIRST_BYTE = b"\x16"
"""With which every TLS handshake begins."""


def test_a_connection_that_shows_no_certificate_is_ended(monkeypatch):
    """Finding 10: 1,300 of them shut all parties out."""
    monkeypatch.setattr(grpc_listening, "_HANDSHAKE_MS", 300)
    with serve(credentials=AUTHORITY.issue("server", "server")) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for each in slow:
            each.sendall(FIRST_BYTE)
        for each in slow:
            each.settimeout(SECONDS)
            assert each.recv(1) == b"", "the server has ended it"
            each.close()


@contextmanager
def connections(port, count):
    with ExitStack() as lines:
        yield [lines.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_connections_that_say_nothing_take_nothing_of_the_server():
    """Finding 10: each took an open file and 60 kB, so that 1,300 were 78 MB."""
    with serve(credentials=AUTHORITY.issue("server", "server")) as server, connections(server.port, 50) as silent:
        before = open_files()
        with channel_to(server.port, credentials=AUTHORITY.issue("party", "bob")) as channel:
            channel.send(hello())
            receive(channel, Welcome)
            assert open_files() < before + 20, "those of the honest party's line, and of nobody else's"
        before = open_files()
        for each in silent:
            each.sendall(FIRST_BYTE)
        until(lambda: open_files() >= before + len(silent) - 20, "those that speak to be taken in")


def test_there_are_only_so_many_connections(monkeypatch):
    monkeypatch.setattr(grpc_listening, "_MOST_CONNECTIONS", 5)
    with serve(credentials=AUTHORITY.issue("server", "server")) as server, connections(server.port, 8) as slow:
        for each in slow:
            each.setblocking(False)
            each.sendall(FIRST_BYTE)
        until(lambda: sum(map(is_ended, slow)) == 3, "the end of three")


def is_ended(line):
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_only_a_port_that_this_process_listens_at_is_found():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert hold_silent(listening.getsockname()[1], 1)
        assert not hold_silent(bound.getsockname()[1], 1)


def test_looking_for_it_leaves_no_file_open(tmp_path):
    one, other = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listening, (tmp_path / "any").open("w"), one, other:
        before = open_files()
        for _ in range(3):
            assert hold_silent(listening.getsockname()[1], 1)
        assert open_files() == before
