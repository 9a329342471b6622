"""Connections of callers that ask nothing, ask slowly, or take no answer: none of them is held for ever."""

import contextlib
import socket
import threading

import pytest

from fdml.serving.online import connections
from fdml.serving.online.connections import http_server
from tests.transport.served import SECONDS, until

BODY = 32 * 2**20
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope, receive, send):
    """A short answer at /, and one that no socket's buffers hold at any other path."""
    if scope["type"] != "http":
        return
    body = b"ok" if scope["path"] == "/" else bytes(BODY)
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(connections, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(connections, "_MOST_CONNECTIONS", 4)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = http_server(app, None)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until(lambda: server.started, "the server")
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(SECONDS)
        assert not thread.is_alive()


@contextlib.contextmanager
def caller(port, sent=b""):
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as line:
        line.sendall(sent)
        yield line


def is_ended(line):
    """Whether the other side has ended it; waits for that."""
    try:
        while line.recv(2**16):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: 1\r\n"])
def test_a_caller_that_does_not_ask_is_let_go(port, monkeypatch, sent):
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 0.1)
    with caller(port, sent) as line:
        assert is_ended(line)


def test_a_caller_that_does_not_finish_its_second_request_is_let_go(port, monkeypatch):
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 0.2)
    with caller(port, WHOLE + WHOLE[:20]) as line:
        assert line.recv(2**16).startswith(b"HTTP/1.1 200")
        assert is_ended(line)


def test_idle_callers_keep_nobody_out_for_long(port, monkeypatch):
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 0.1)

    def status():
        with caller(port, WHOLE) as line:
            return line.recv(2**16).split()[1]

    with contextlib.ExitStack() as open_lines:
        for _ in range(4):
            open_lines.enter_context(caller(port))
        until(lambda: status() == b"200", "room for a caller that asks")


def test_a_caller_that_takes_nothing_of_its_answer_is_let_go(port, monkeypatch):
    monkeypatch.setattr(connections, "_TAKING_SECONDS", 0.1)
    with caller(port, WHOLE.replace(b"/ ", b"/large ", 1)) as line:
        ended = threading.Event()
        connection_lost = connections.Connection.connection_lost
        monkeypatch.setattr(
            connections.Connection,
            "connection_lost",
            lambda each, error: (connection_lost(each, error), ended.set()),
        )
        assert ended.wait(SECONDS)
        taken = 0
        with contextlib.suppress(ConnectionError):
            while piece := line.recv(2**16):
                taken += len(piece)
        assert taken < BODY


def test_a_caller_that_takes_its_answer_slowly_gets_all_of_it(port, monkeypatch):
    monkeypatch.setattr(connections, "_TAKING_SECONDS", 1.0)
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 0.01)
    with caller(port, WHOLE.replace(b"/ ", b"/large ", 1)) as line:
        taken = 0
        while taken < BODY:
            piece = line.recv(2**14)
            assert piece
            taken += len(piece)


def test_headers_without_end_are_refused(port):
    with caller(port, WHOLE[:-2] + b"X: " + b"a" * 40_000) as line:
        assert line.recv(2**16).startswith(b"HTTP/1.1 400")
