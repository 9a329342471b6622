import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from benchmarks.proxy import Proxy


@contextmanager
def echo():
    """A server that sends everything back; gives its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(line):
        with line, suppress(OSError):
            while data := line.recv(65536):
                line.sendall(data)

    def serve():
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(line,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def proxy():
    with echo() as port:
        made = Proxy(port)
        yield made
        made.close()


@pytest.fixture
def line(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as made:
        yield made


def echoed(line, data):
    began = time.monotonic()
    line.sendall(data)
    received = bytearray()
    while len(received) < len(data):
        received += line.recv(65536)
    assert received == data
    return time.monotonic() - began


def test_what_goes_in_comes_out(line):
    echoed(line, bytes(range(256)) * 4096)


def test_a_cut_breaks_every_connection_and_refuses_new_ones_until_it_is_healed(proxy, line):
    echoed(line, b"before")
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        line.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as again:
        echoed(again, b"after")


def test_a_stall_holds_everything_back_until_it_is_healed(proxy, line):
    echoed(line, b"before")
    proxy.stall()
    line.settimeout(0.2)
    with pytest.raises(TimeoutError):
        echoed(line, b"held")
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as other:
        other.settimeout(0.2)
        with pytest.raises(TimeoutError):
            echoed(other, b"held")
        proxy.heal()
        line.settimeout(5)
        other.settimeout(5)
        assert line.recv(10) == other.recv(10) == b"held"


def test_a_delay_is_there_in_both_directions_but_does_not_slow(proxy, line):
    proxy.delay(0.1)
    assert echoed(line, b"x") >= 0.2
    pieces = 10**7 // 65536
    assert echoed(line, bytes(10**7)) < 0.2 * pieces, "pieces are delayed together, not one after the other"


def test_a_slowed_line_passes_no_more_bytes_a_second(proxy, line):
    proxy.slow(200_000)
    assert echoed(line, bytes(100_000)) >= 0.4
