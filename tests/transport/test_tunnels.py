"""Connections to a party that accepts none, carried by calls that it makes."""

import asyncio
import socket
import threading

import pytest

from benchmarks.ports import reserved_port
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.tunnels import Tunnels, WayBack
from tests.server.meshes import SETTINGS, Member
from tests.transport.served import SECONDS, ServedSession, server_loop, until


class EchoServer:
    """What a hidden party listens with, on its own machine: it answers with what it gets, twice."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    @staticmethod
    def _answer(connection):
        with connection:
            while data := connection.recv(2**16):
                connection.sendall(data + data)

    def close(self):
        self._socket.close()


def listening():
    """The session of ann, which others call, with a way to cat, which accepts no connections."""
    return ServedSession(Member("ann").session, SETTINGS, tunnels=Tunnels(("cat",)))


@pytest.fixture
def ann():
    with listening() as served:
        yield served


@pytest.fixture
def hidden():
    server = EchoServer()
    yield server
    server.close()


def endpoint(ann, party="cat"):
    return Endpoint(f"127.0.0.1:{ann.port}", SETTINGS.federation, party, None, answers_as="ann")


def connect(ann):
    return socket.create_connection(("127.0.0.1", ann.tunnels.ports["cat"]), SECONDS)


def read(connection, size):
    found = b""
    while len(found) < size and (data := connection.recv(size - len(found))):
        found += data
    return found


def test_bytes_pass_both_ways_over_many_connections(ann, hidden):
    with WayBack([endpoint(ann)], hidden.address):
        for number in range(3):
            with connect(ann) as first, connect(ann) as second:
                first.sendall(b"ab%d" % number)
                assert read(first, 6) == b"ab%d" % number * 2
                long = bytes(range(256)) * 1000
                second.sendall(long)
                assert sorted(read(second, 2 * len(long))) == sorted(long + long)


def test_a_connection_without_a_call_that_carries_it_is_closed(ann, monkeypatch):
    monkeypatch.setattr("fdml.transport.tunnels._TUNNEL_SECONDS", 0.1)
    with connect(ann) as connection:
        connection.sendall(b"anybody?")
        assert connection.recv(10) == b""


def test_a_way_back_is_there_again_when_the_other_party_is(hidden):
    with reserved_port() as port:
        target = Endpoint(f"127.0.0.1:{port}", SETTINGS.federation, "cat", None, answers_as="ann")
        with WayBack([target], hidden.address):
            for _ in range(2):
                tunnels = Tunnels(("cat",))
                session = Member("ann").session
                with (
                    ServedSession(session, SETTINGS, port=port, tunnels=tunnels) as served,
                    connect(served) as connection,
                ):
                    connection.sendall(b"x")
                    assert read(connection, 2) == b"xx"


def test_when_one_end_goes_the_other_is_told(ann, hidden):
    with WayBack([endpoint(ann)], hidden.address):
        with connect(ann) as connection:
            connection.sendall(b"x")
            assert read(connection, 2) == b"xx"
        with connect(ann) as connection:  # the next one is carried all the same
            connection.sendall(b"y")
            assert read(connection, 2) == b"yy"


def test_a_party_with_an_address_needs_no_way_back(ann, hidden):
    with WayBack([endpoint(ann, "bob")], hidden.address):
        until(lambda: any("it needs no way back" in str(event) for event in ann.events), "the refusal")


def test_a_call_that_has_ended_while_it_waited_carries_nothing():
    async def run():
        tunnels = Tunnels(("cat",))
        await tunnels.open()
        gone = asyncio.create_task(tunnels.hold("cat", _nothing(), _write))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        written = []

        async def write(data):
            written.append(data)

        good = asyncio.create_task(tunnels.hold("cat", _nothing(), write))
        _, writer = await asyncio.open_connection("127.0.0.1", tunnels.ports["cat"])
        writer.write(b"hello")
        async with asyncio.timeout(SECONDS):
            while not written:
                await asyncio.sleep(0.01)
        good.cancel()
        tunnels.close()
        writer.close()
        return b"".join(written)

    assert asyncio.run_coroutine_threadsafe(run(), server_loop()).result(SECONDS) == b"hello"


async def _nothing():
    await asyncio.sleep(SECONDS)
    yield b""


async def _write(_):
    """Takes anything."""


def test_connections_end_with_the_session_that_they_came_to():
    """Whether a call carries them by then or not; else they would hang, and outlive the session's loop."""

    async def run():
        tunnels, carried_on = Tunnels(("cat",)), asyncio.Event()
        await tunnels.open()

        async def write(_):
            carried_on.set()

        async def endless():
            await asyncio.Event().wait()
            yield b""

        call = asyncio.create_task(tunnels.hold("cat", endless(), write))
        carried, first = await asyncio.open_connection("127.0.0.1", tunnels.ports["cat"])
        first.write(b"hello")
        async with asyncio.timeout(SECONDS):
            await carried_on.wait()
        waiting, second = await asyncio.open_connection("127.0.0.1", tunnels.ports["cat"])
        await asyncio.sleep(0.1)
        tunnels.close()
        async with asyncio.timeout(2.0):  # a connection without a call would wait for 5 s
            assert (await carried.read(), await waiting.read()) == (b"", b"")
        for writer in (first, second):
            writer.close()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    asyncio.run(run())
