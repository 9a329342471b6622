"""Connections to a party that accepts none: it opens calls outward, and each carries one connection back to it.

What passes is TLS between the two ends, as on any line: whoever carries it reads and changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial

import grpc

from fdml.errors import FdmlError
from fdml.transport.first_ended import until_one_ends
from fdml.transport.grpc_endpoint import TUNNEL, Endpoint, call_metadata
from fdml.transport.grpc_incoming import Incoming
from fdml.transport.grpc_known_server import KnownServer

_CHUNK = 64 * 2**10
_PAUSE = 0.3
_TUNNEL_SECONDS = 5.0
"""How long a connection waits for a call that can carry it."""
_PEER_SECONDS = 60.0

_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Tunnels:
    """At a party that others call: for each party that accepts no connections a port of loopback that leads to it."""

    def __init__(self, parties: Sequence[str]) -> None:
        self._idle: dict[str, asyncio.Queue[asyncio.Future[_Ends]]] = {party: asyncio.Queue() for party in parties}
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.StreamWriter] = set()
        """Those that came and have not ended."""
        self.ports: dict[str, int] = {}
        """Where each of them is reached from here, once the server listens."""

    async def open(self) -> None:
        """Listen for connections to all of them."""
        for party in self._idle:
            server = await asyncio.start_server(partial(self._carry, party), "127.0.0.1", 0)
            self._servers.append(server)
            self.ports[party] = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Take no more connections, and end those that there are."""
        for server in self._servers:
            server.close()
        for writer in self._connections:
            writer.close()
        self._connections.clear()

    def leads_to(self, party: str) -> bool:
        """Whether a party is one of those."""
        return party in self._idle

    async def hold(self, party: str, requests: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[None]]) -> None:
        """Hold a call of such a party until a connection to it was carried to its end."""
        taken: asyncio.Future[_Ends] = asyncio.get_running_loop().create_future()
        self._idle[party].put_nowait(taken)
        reader, writer = await taken
        incoming = Incoming(requests)

        async def there() -> None:
            while data := await reader.read(_CHUNK):
                await write(data)

        async def back() -> None:
            with contextlib.suppress(ConnectionError):  # as nobody may be left to hear of it
                async for data in incoming:
                    writer.write(data)
                    await writer.drain()

        reading = asyncio.create_task(back())

        async def read_all() -> None:
            await asyncio.wait([reading])  # who waits here may be cancelled, and the reading goes on
            reading.result()

        try:
            with contextlib.suppress(ConnectionError):
                await until_one_ends([asyncio.create_task(there()), asyncio.create_task(read_all())])
        finally:
            incoming.end()
            self._end(writer)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._connections.discard(writer)
        writer.close()

    async def _carry(self, party: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand a new connection to a call that waits for one."""
        self._connections.add(writer)
        try:
            async with asyncio.timeout(_TUNNEL_SECONDS):
                while (taken := await self._idle[party].get()).done():
                    pass  # that call has ended while it waited
            taken.set_result((reader, writer))
        except TimeoutError:
            self._end(writer)


class WayBack:
    """At a party that accepts no connections: keeps a call open to each other party, for the next connection."""

    def __init__(self, others: Sequence[Endpoint], own: str) -> None:
        """`own` is where this party's session listens."""
        host, _, port = own.rpartition(":")
        self._own = (host.strip("[]"), int(port))
        self._others = others
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._calls: set[grpc.Call] = set()

    def __enter__(self) -> WayBack:
        for endpoint in self._others:
            self._start(endpoint)
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def _start(self, endpoint: Endpoint) -> None:
        threading.Thread(target=self._keep, args=(endpoint,), name="tunnel", daemon=True).start()

    def _keep(self, endpoint: Endpoint) -> None:
        """Open calls until one has carried a connection; by then another thread has the next one."""
        known = KnownServer(endpoint, _PEER_SECONDS)
        while not self._closed.is_set():
            try:
                if self._carry_one(endpoint, known):
                    return
            except (grpc.RpcError, FdmlError, OSError):
                known.forget()
            self._closed.wait(_PAUSE)

    def _carry_one(self, endpoint: Endpoint, known: KnownServer) -> bool:
        """Whether a connection came and was carried to its end."""
        inner, ready = socket.socket(), threading.Event()
        with inner, known.open() as channel:
            open_tunnel: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
                TUNNEL, request_serializer=None, response_deserializer=None
            )
            call = open_tunnel(_received(inner, ready), metadata=call_metadata(endpoint))
            with self._lock:
                self._calls.add(call)
            try:
                first = next(iter(call), None)
                if first is None or self._closed.is_set():
                    return False
                self._start(endpoint)
                self._forward(call, first, inner, ready)
            finally:
                with self._lock:
                    self._calls.discard(call)
                with contextlib.suppress(OSError):
                    inner.shutdown(socket.SHUT_RDWR)
                ready.set()
                call.cancel()
        return True

    def _forward(self, call: Iterator[bytes], first: bytes, inner: socket.socket, ready: threading.Event) -> None:
        with contextlib.suppress(grpc.RpcError, OSError):  # either end may go at any time
            inner.connect(self._own)
            inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.set()
            inner.sendall(first)
            for data in call:
                inner.sendall(data)


def _received(inner: socket.socket, ready: threading.Event) -> Iterator[bytes]:
    """What the own session answers, once there is a connection to it."""
    ready.wait()
    with contextlib.suppress(OSError):
        while data := inner.recv(_CHUNK):
            yield data
