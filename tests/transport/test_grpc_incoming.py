"""Finding 10 again: what comes on a stream that is over stays nowhere, however much it is."""

import asyncio
import ctypes
import gc
import time

import grpc
import pytest

from fdml.server.relay import Relay, RelayLine
from fdml.transport import grpc_server
from fdml.transport.grpc_endpoint import JOIN, PARTY_HEADER
from fdml.transport.grpc_incoming import Incoming
from fdml.transport.relay_lines import RelayLines
from fdml.transport.tunnels import Tunnels
from tests.transport.raw_stream import raw_channel
from tests.transport.served import SECONDS
from tests.transport.test_limits import serve

BOB = ((PARTY_HEADER, b"bob".hex()),)
STREAMS, SIZE = 20, 1_000_000
HELD_BACK, PAUSE = 0.2, 0.05
"""Seconds: how long a refusal is held back, and after which the rubbish goes on."""
MOST = 6e6
"""A reader that is cancelled leaves the message that comes next: 20 MB of 20 streams."""
ALLOCATED = getattr(ctypes.CDLL(None), "mallinfo2", None)


class Allocations(ctypes.Structure):
    """What glibc tells of its heaps, all of them together."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keep",
        )
    )


def allocated():
    """Bytes that the process has allocated outside of Python's own small blocks."""
    ALLOCATED.restype = Allocations
    gc.collect()
    found = ALLOCATED()
    return found.uordblks + found.hblkhd


def rubbish(port, streams):
    """Streams whose first message is refused, and go on while the answer is held back."""

    def messages():
        yield b"rubbish"
        time.sleep(PAUSE)
        yield bytes(SIZE)

    with raw_channel(port) as channel:
        call = channel.stream_stream(JOIN)
        for _ in range(streams):
            with pytest.raises(grpc.RpcError) as refused:
                list(call(messages(), timeout=SECONDS, metadata=BOB))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.slow
@pytest.mark.skipif(ALLOCATED is None, reason="another allocator than glibc's")
def test_what_comes_behind_a_refused_message_is_not_kept(monkeypatch):
    """A party with a valid certificate could fill the server's memory, a message for each stream."""
    monkeypatch.setattr(grpc_server.RefusalPace, "seconds", lambda *_: HELD_BACK)
    with serve() as server:
        rubbish(server.port, 5)
        before = allocated()
        rubbish(server.port, STREAMS)
        deadline = time.monotonic() + 5.0
        while (grown := allocated() - before) > MOST and time.monotonic() < deadline:
            time.sleep(0.1)
    assert grown < MOST


# Reading is told to end.


class Source:
    """Messages of a stream that come when a test says so; knows whether a reader was cancelled while it waited."""

    def __init__(self):
        self.cancelled = self.read = 0
        self.ready = asyncio.Queue()

    async def __aiter__(self):
        while True:
            try:
                message = await self.ready.get()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            if isinstance(message, Exception):
                raise message
            self.read += 1
            yield message


def in_loop(work):
    async def bounded():
        async with asyncio.timeout(SECONDS):
            await work()

    asyncio.run(bounded())


def test_messages_come_in_their_order_and_none_once_it_is_over():
    async def work():
        source, found = Source(), []
        incoming = Incoming(source)
        for number in range(3):
            source.ready.put_nowait(bytes([number]))

        async def read():
            async for message in incoming:
                found.append(message)

        reader = asyncio.create_task(read())
        await asyncio.sleep(0.01)
        incoming.end()
        source.ready.put_nowait(b"what was under way")
        source.ready.put_nowait(b"never read")
        await reader
        assert found == [b"\0", b"\1", b"\2"]
        assert (source.read, source.cancelled) == (4, 0)
        assert [message async for message in incoming] == []
        assert source.read == 4, "nothing is read on a call that is over"

    in_loop(work)


@pytest.mark.parametrize("error", [grpc.aio.UsageError("RPC already finished."), grpc.aio.AbortError("aborted")])
def test_a_call_that_is_over_is_the_end_of_its_messages(error):
    async def work():
        source = Source()
        incoming = Incoming(source)
        source.ready.put_nowait(b"one")
        source.ready.put_nowait(error)
        assert [message async for message in incoming] == [b"one"]
        assert incoming.ended

    in_loop(work)


def test_other_errors_pass():
    async def work():
        source = Source()
        source.ready.put_nowait(ValueError("a bug"))
        with pytest.raises(ValueError, match="a bug"):
            await anext(Incoming(source))

    in_loop(work)


class AllKnown:
    def check(self, party, certificate):
        pass


async def write(_):
    """Takes anything."""


async def carried(source, *, ending):
    """A call of a party without an address that carries one connection, which its other end closes."""
    tunnels = Tunnels(("cat",))
    await tunnels.open()
    call = asyncio.create_task(tunnels.hold("cat", source, write))
    _, writer = await asyncio.open_connection("127.0.0.1", tunnels.ports["cat"])
    writer.write(b"hello")
    await asyncio.sleep(0.05)
    await ending(call, writer.close)
    tunnels.close()
    writer.close()


async def relayed(source, *, ending):
    lines = RelayLines(Relay(("ann", "bob")), AllKnown())
    line = RelayLine("bob", answers=True)
    call = asyncio.create_task(lines.hold(line, None, source, write=write, refuse=write))
    await asyncio.sleep(0.05)
    await ending(call, lambda: lines._streams[line].outgoing.put(None))


async def by_the_server(call, end):
    end()
    await call


async def by_its_caller(call, _):
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize("held", [carried, relayed])
@pytest.mark.parametrize("ending", [by_the_server, by_its_caller])
def test_a_reader_that_waits_is_not_cancelled_when_its_call_ends(held, ending):
    async def work():
        source = Source()
        await held(source, ending=ending)
        await asyncio.sleep(0.05)
        assert source.cancelled == 0
        source.ready.put_nowait(b"what was under way")
        source.ready.put_nowait(b"never read")
        await asyncio.sleep(0.05)
        assert (source.read, source.cancelled) == (1, 0)

    in_loop(work)
