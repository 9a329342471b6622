"""Many callers of an HTTP endpoint in one process: each sends its next request when its last one is answered."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fdml.errors import FdmlError

_HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True)
class Load:
    """What callers saw."""

    seconds: float
    latencies: tuple[float, ...]
    """Seconds of each request, ascending."""

    @property
    def per_second(self) -> float:
        """Requests."""
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """Seconds that this share of requests did not exceed."""
        return self.latencies[min(int(share * len(self.latencies)), len(self.latencies) - 1)]


def request(path: str, ids: Sequence[str], *, column: str = "id") -> bytes:
    """A request of the protocol with binary tensors in and out, as bytes for a socket."""
    raw = b"".join([struct.pack("<I", len(each)) + each.encode() for each in ids])
    tensor = {
        "name": column,
        "datatype": "BYTES",
        "shape": [len(ids)],
        "parameters": {"binary_data_size": len(raw)},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\n"
        f"Inference-Header-Content-Length: {len(head)}\r\nContent-Length: {len(head) + len(raw)}\r\n\r\n"
    )
    return lines.encode() + head + raw


def load(port: int, requests: Sequence[bytes], callers: int, seconds: float) -> Load:
    """Let callers send these requests, each from another place on, for so many seconds."""
    return asyncio.run(_load(port, requests, callers, seconds))


async def _load(port: int, requests: Sequence[bytes], callers: int, seconds: float) -> Load:
    latencies: list[float] = []
    began = time.perf_counter()
    end = began + seconds
    await asyncio.gather(*(_call(port, requests, number * 997, end, latencies) for number in range(callers)))
    return Load(time.perf_counter() - began, tuple(sorted(latencies)))  # with the last answers, which come after it


async def _call(port: int, requests: Sequence[bytes], at: int, end: float, latencies: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
    try:
        while (began := time.perf_counter()) < end:
            writer.write(requests[at % len(requests)])
            at += 1
            head = await reader.readuntil(_HEAD_END)
            status, length = int(head[9:12]), _length(head)
            body = await reader.readexactly(length)
            if status != 200:
                raise FdmlError(f"the endpoint at port {port} answers with {status}: {body[:200]!r}")
            latencies.append(time.perf_counter() - began)
    finally:
        writer.close()
        await writer.wait_closed()


def _length(head: bytes) -> int:
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    return next(int(value) for name, _, value in lines if name.lower() == b"content-length")
