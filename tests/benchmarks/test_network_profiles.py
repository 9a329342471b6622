import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from benchmarks.network_profiles import FAR, LOOPBACK, MEGABIT, MIDDLE, NEAR, proxies

pytestmark = pytest.mark.slow

COUNT = 3
TRIES = 4
"""A busy machine delays what it likes; the best of a few tries shows what the proxy does."""


@contextmanager
def listener():
    """A server that says one byte back for every four that say how many bytes follow them."""
    made = socket.create_server(("127.0.0.1", 0))

    def answer(line):
        with line, suppress(OSError):
            while head := line.recv(4, socket.MSG_WAITALL):
                read(line, int.from_bytes(head))
                line.sendall(b"!")

    def serve():
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(made.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield made.getsockname()[1]
    made.shutdown(socket.SHUT_RDWR)
    made.close()


def read(line, count):
    while count:
        count -= len(line.recv(min(count, 2**20)))


def seconds_for(line, count):
    """From the first byte's leaving to the answer's coming."""
    data = count.to_bytes(4) + bytes(count)
    began = time.monotonic()
    line.sendall(data)
    assert line.recv(1) == b"!"
    return time.monotonic() - began


@contextmanager
def lines(kind):
    with listener() as target, proxies(target, kind, COUNT) as ports:
        made = [socket.create_connection(("127.0.0.1", port), timeout=10) for port in ports]
        yield made
        for line in made:
            line.close()


@pytest.mark.parametrize("kind", [NEAR, MIDDLE, FAR], ids=lambda line: line.name)
def test_a_round_trip_takes_as_long_as_asked(kind):
    with lines(kind) as (line, *_):
        seconds = [seconds_for(line, 1) for _ in range(5 * TRIES)]
    assert min(seconds) >= kind.round_trip
    assert min(seconds) < 1.15 * kind.round_trip + 0.001, "a millisecond for the two ends"


def test_three_lines_carry_a_hundred_megabits_at_once_over_a_hundred_milliseconds():
    """More than is under way at a time, so that no queue of the proxy may be too short."""
    size = 5 * 10**6
    asked = FAR.round_trip + size / (100 * MEGABIT)
    with lines(FAR) as made, ThreadPoolExecutor(len(made)) as pool:
        slowest = [max(pool.map(lambda line: seconds_for(line, size), made)) for _ in range(TRIES)]
    assert min(slowest) >= 0.99 * asked
    assert min(slowest) < 1.15 * asked


def test_a_direct_line_has_no_proxy():
    with proxies(1234, LOOPBACK, COUNT) as ports:
        assert ports == [1234] * COUNT
