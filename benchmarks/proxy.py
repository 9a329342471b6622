"""A TCP proxy that does to a line what networks do: it cuts, stalls, delays, slows and spoils bytes.

It runs in a thread of its own. A party goes through it by
`server = "127.0.0.1:<proxy.port>"` in its party.toml.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

_CHUNK = 64 * 2**10
_SLICES = 20
"""A slowed line passes so many pieces a second, or more."""
_MOST_UNDER_WAY = 8 * 2**20
"""Bytes of one direction of a connection that may be under way before the sender has to wait: several times what a
line of 100 Mbit/s and 100 ms holds, so that delay and rate are the only limits."""


class Proxy:
    """Forwards every connection to one target; what it does to the bytes can be changed at any time."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._loop = asyncio.SelectorEventLoop(selectors.SelectSelector())  # the others wait in whole milliseconds
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._spoiled = 0
        self._delay = 0.0
        self._rate = 0.0
        self.port = 0
        self.recording: list[bytes] | None = None
        """What passes is put here, if there is a list."""
        self.accepted = 0
        """Connections so far."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._do(self._listen())

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self._do(self._break())

    def stall(self) -> None:
        """Accept connections, keep those there are, and pass nothing on."""
        self._call(self._flowing.clear)

    def heal(self) -> None:
        """Undo a cut or a stall; what was held back goes on its way."""
        self._call(self._flowing.set)
        self._do(self._listen())

    def delay(self, seconds: float) -> None:
        """Let every byte arrive so much later, in both directions."""
        self._delay = seconds

    def slow(self, rate: float) -> None:
        """Pass so many bytes a second in each direction of each connection; 0 for as fast as can be."""
        self._rate = rate

    def corrupt(self, chunks: int = 1) -> None:
        """Change a byte of each of the next few chunks of answers, as a broken box on the way does."""
        self._spoiled = chunks

    def close(self) -> None:
        """Break everything and end the thread."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    def _call(self, work: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(work)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _break(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            _reset(writer)

    async def _end(self) -> None:
        await self._break()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        try:
            await self._flowing.wait()
            there, onward = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            self._drop(writer)
            return
        self._writers.add(onward)
        ways = (self._carry(reader, onward), self._carry(there, writer, answers=True))
        try:
            await asyncio.gather(*ways)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._drop(writer)
            self._drop(onward)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        """One direction of one connection: read at once, hand over when it is due."""
        under_way = _UnderWay()
        delivery = asyncio.create_task(self._deliver(under_way, writer))
        free_at = 0.0
        try:
            data = b" "
            while data:
                await self._flowing.wait()
                data = await reader.read(_CHUNK)
                if self.recording is not None:
                    self.recording.append(data)
                if answers and self._spoiled and data:
                    self._spoiled -= 1
                    data = bytes([data[0] ^ 0xFF]) + data[1:]
                free_at = max(free_at, self._loop.time())
                for piece in self._pieces(data):
                    free_at += len(piece) / self._rate if self._rate else 0.0
                    await under_way.put(free_at + self._delay, piece)
            await under_way.put(free_at + self._delay, b"")
            await delivery
        finally:
            delivery.cancel()

    async def _deliver(self, under_way: _UnderWay, writer: asyncio.StreamWriter) -> None:
        while True:
            due, piece = await under_way.get()
            if (early := due - self._loop.time()) > 0.0:
                await asyncio.sleep(early)
            if not piece:
                writer.write_eof()
                return
            await self._flowing.wait()
            writer.write(piece)
            await writer.drain()

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        size = max(1, int(self._rate / _SLICES) if self._rate else len(data))
        for start in range(0, len(data), size):
            yield data[start : start + size]


class _UnderWay:
    """What one direction of a connection carries just now, with the time at which each piece is due."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, due: float, piece: bytes) -> None:
        """Send a piece on its way, once there is room; an empty one is the end."""
        await self._room.wait()
        self._bytes += len(piece)
        if self._bytes >= _MOST_UNDER_WAY:
            self._room.clear()
        self._pieces.put_nowait((due, piece))

    async def get(self) -> tuple[float, bytes]:
        """The next piece and when it is due."""
        due, piece = await self._pieces.get()
        self._bytes -= len(piece)
        if self._bytes < _MOST_UNDER_WAY:
            self._room.set()
        return due, piece


def _reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection as a router does that forgot it: no farewell, a reset."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
