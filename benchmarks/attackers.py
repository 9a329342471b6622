"""What one party with a valid certificate, and anyone without, can throw at a server: for the benchmark `load`.

Each attack is a function of a target. It goes on until it is told to end, and counts what it has sent.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import grpc
import numpy as np

from fdml.errors import MessageRefused
from fdml.protocol.alignment_calls import FetchCall, encode_fetch
from fdml.protocol.fixed_point import encode
from fdml.protocol.identity import Credentials, host_name
from fdml.protocol.messages import (
    Checkpointed,
    Finished,
    FromParty,
    HeldOutPredictions,
    Hello,
    Labels,
    Push,
    Release,
    SealedMetrics,
    Stop,
)
from fdml.protocol.wire import decode_from_party, encode_from_party
from fdml.transport.grpc_endpoint import ALIVE, FETCH, JOIN

_IDLE = 1300
_BEGUN = 650
"""Connections that begin a handshake and then say nothing, beside the idle ones."""
_FIRST_BYTE = b"\x16"
"""With which every TLS handshake begins."""
_BOMB = bytes(64 * 2**20)
_JUNK = "x" * (20 * 2**20)
_STREAMS = 8
"""Streams of mutated messages at a time."""
_PER_STREAM = 25
"""Messages of one stream: the first that is refused ends it, the others are on their way then. The server answers so
many refusals of one certificate in a second, whatever comes: with few messages to a stream an attack takes long."""
_PAUSE = 0.2
_CALL_SECONDS = 20.0


@dataclass
class Target:
    """A server, the certificate of one of its parties, and a hello of that party."""

    port: int
    credentials: Credentials
    hello: Hello
    sent: Counter[str] = field(default_factory=Counter)
    """What was sent so far, by kind."""
    ended: threading.Event = field(default_factory=threading.Event)

    def channel(self) -> grpc.Channel:
        """A connection of its own."""
        keys = grpc.ssl_channel_credentials(
            self.credentials.authority, self.credentials.key, self.credentials.certificate
        )
        options = [
            ("grpc.ssl_target_name_override", host_name("bench")),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        return grpc.secure_channel(f"127.0.0.1:{self.port}", keys, options)


def idle_connections(target: Target) -> None:
    """1,300 connections that say nothing; each that the server ends is made anew."""
    _hold_connections(target, _IDLE, "idle connections", b"")


def begun_handshakes(target: Target) -> None:
    """650 connections that say one byte; each that the server ends is made anew."""
    _hold_connections(target, _BEGUN, "begun handshakes", _FIRST_BYTE)


def _hold_connections(target: Target, count: int, name: str, first: bytes) -> None:
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            _connect(target, selector, name, first)
        while not target.ended.is_set():
            for key, events in selector.select(_PAUSE):
                line: Any = key.fileobj
                if events & selectors.EVENT_READ:
                    selector.unregister(line)
                    line.close()
                    _connect(target, selector, name, first)
                else:
                    with suppress(OSError):  # refused
                        line.send(first)
                    selector.modify(line, selectors.EVENT_READ)
        for key in list(selector.get_map().values()):
            _close(key.fileobj)


def _connect(target: Target, selector: selectors.BaseSelector, name: str, first: bytes) -> None:
    line = socket.socket()
    line.setblocking(False)
    line.connect_ex(("127.0.0.1", target.port))
    selector.register(line, selectors.EVENT_READ | (selectors.EVENT_WRITE if first else 0))
    target.sent[name] += 1


def _close(line: Any) -> None:
    line.close()


def compressed_calls(target: Target) -> None:
    """Calls of 64 MiB of zeros, compressed to 64 KiB."""
    with target.channel() as channel:
        call: Any = channel.unary_unary(ALIVE)
        while not target.ended.wait(_PAUSE):
            _try(lambda: call(_BOMB, timeout=_CALL_SECONDS, compression=grpc.Compression.Gzip))
            target.sent["compressed calls"] += 1


def junk_calls(target: Target) -> None:
    """Calls with a name of 20 MiB."""
    raw = encode_fetch(FetchCall(_JUNK, "p0", "", target.hello.run_hash))
    with target.channel() as channel:
        call: Any = channel.unary_stream(FETCH)
        while not target.ended.wait(_PAUSE):
            _try(lambda: list(call(raw, timeout=_CALL_SECONDS)))
            target.sent["calls of 20 MiB"] += 1


def _try(call: Callable[[], object]) -> None:
    try:
        call()
    except grpc.RpcError:
        return


def mutated_messages(target: Target, messages: int, seed: int) -> None:
    """Streams of mutated messages, a few at a time, until so many messages were sent."""
    chance, left = Random(seed), messages
    valid = [encode_from_party(message) for message in valid_messages(target.hello)]
    with target.channel() as channel:
        join: Any = channel.stream_stream(JOIN)
        while left > 0:
            calls = [
                join(iter([mutant(valid, target.hello, chance) for _ in range(_PER_STREAM)]), timeout=_CALL_SECONDS)
                for _ in range(_STREAMS)
            ]
            for call in calls:
                _try(lambda call=call: list(call))  # type: ignore[misc]
            left -= _STREAMS * _PER_STREAM
            target.sent["mutated messages"] += _STREAMS * _PER_STREAM
            target.sent["streams of them"] += _STREAMS


def valid_messages(hello: Hello) -> list[FromParty]:
    """A message of every kind that a party sends."""
    release = Release(encode(np.linspace(-1.0, 1.0, 100)))
    return [
        hello,
        Labels(2, bytes(500)),
        Push(3, release),
        Stop(5),
        Checkpointed(2),
        HeldOutPredictions(1, release),
        SealedMetrics(1),
        Finished(bytes(32)),
    ]


def mutant(valid: list[bytes], hello: Hello, chance: Random) -> bytes:
    """A message with a few things done to it; never a hello that the server would take for the party's own."""
    while True:
        raw = bytearray(chance.choice(valid))
        for _ in range(chance.randint(1, 3)):
            raw = _mutate(raw, valid, chance)
        if not _is_in_order(bytes(raw), hello):
            return bytes(raw)


def _mutate(raw: bytearray, valid: list[bytes], chance: Random) -> bytearray:
    at = chance.randrange(len(raw) + 1)
    match chance.randrange(5):
        case 0:
            return raw[:at]
        case 1:
            return raw[:at] + chance.randbytes(chance.choice((1, 8, 33))) + raw[at:]
        case 2:
            other = chance.choice(valid)
            return raw[:at] + other[chance.randrange(len(other)) :]
        case 3:
            return bytearray(chance.randbytes(chance.randrange(200)))
        case _:
            for _ in range(chance.choice((1, 2, 8)) if raw else 0):
                raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            return raw


def _is_in_order(raw: bytes, hello: Hello) -> bool:
    """Whether it is a hello of this run: it would end the party's own line, which is its right."""
    try:
        message = decode_from_party(raw)
    except MessageRefused:
        return False
    return isinstance(message, Hello) and message.run_hash == hello.run_hash


def all_at_once(target: Target, messages: int, seed: int) -> Iterator[threading.Thread]:
    """Threads of all attacks; the mutated messages end by themselves, the others when the target's event is set."""
    for work in (idle_connections, begun_handshakes, compressed_calls, junk_calls):
        yield threading.Thread(target=work, args=(target,), name=work.__name__, daemon=True)
    yield threading.Thread(target=mutated_messages, args=(target, messages, seed), name="mutated_messages", daemon=True)


def attack(target: Target, messages: int, seed: int, least_seconds: float) -> None:
    """Everything at once, until so many mutated messages were sent and so many seconds have passed."""
    began = time.monotonic()
    threads = list(all_at_once(target, messages, seed))
    for thread in threads:
        thread.start()
    threads[-1].join()
    time.sleep(max(0.0, least_seconds - (time.monotonic() - began)))
    target.ended.set()
    for thread in threads:
        thread.join()
