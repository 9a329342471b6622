"""The board of a run, reached over gRPC: short calls that are tried again until the server answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from fdml.errors import PeerTimeout
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.alignment_messages import AlignmentMessage, N
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment, kind_of
from fdml.protocol.messages import PROTOCOL
from fdml.transport.grpc_channel import (
    ALIVE,
    FETCH,
    POST,
    Endpoint,
    call_metadata,
    error_text,
    no_server,
    open_channel,
    permanent_error,
)

_CALL_SECONDS = 600.0
"""How long one call may take, the transfer of a large set over a slow line included; a dead line is noticed before."""
_PAUSE = 0.2
_ALIVE_SECONDS = 1.0


class GrpcBulletin:
    """One party's way to the board. A thread tells the server that the party is at work, however long that takes."""

    def __init__(self, address: Endpoint, run_hash: bytes, peer_timeout: float, say: Callable[[str], None]) -> None:
        self._address = address
        self._run_hash = run_hash
        self._peer_timeout = peer_timeout
        self._say = say
        self._told: tuple[str, ...] = ()
        self._channel = open_channel(address, peer_timeout)
        self._closed = threading.Event()
        self.bytes_sent = 0
        self.bytes_received = 0
        threading.Thread(target=self._show_life, name="keepalive_options", daemon=True).start()

    def post(self, notice: AlignmentMessage, to: str = "", about: str = "") -> None:
        """Put up a notice; the server has stored it on return."""
        posting = pb.PostRequest(
            to=to, about=about, notice=encode_alignment(notice), run_hash=self._run_hash, protocol=PROTOCOL
        )
        self._call(POST, posting.SerializeToString())

    def fetch(self, kind: type[N], sender: str, about: str = "") -> N:
        """Wait for a notice; who is waited for may take its time, but not be silent longer than the peer timeout."""
        query = pb.FetchRequest(
            kind=kind_of(kind), sender=sender, about=about, run_hash=self._run_hash, protocol=PROTOCOL
        )
        began = time.monotonic()
        while True:
            found = pb.FetchReply.FromString(self._call(FETCH, query.SerializeToString()))
            if found.notice:
                notice = decode_alignment(found.notice)
                if not isinstance(notice, kind):
                    raise TypeError(f"the server answered with {type(notice).__name__} instead of {kind.__name__}")
                return notice
            self._tell_waits(tuple(found.waits_for))
            if time.monotonic() - began > self._peer_timeout:
                self._give_up_on_silent(found)

    def _tell_waits(self, names: tuple[str, ...]) -> None:
        if names and names != self._told:
            self._told = names
            self._say(f"waiting for {', '.join(names)}")

    def _give_up_on_silent(self, found: pb.FetchReply) -> None:
        """Raise if anyone waited for has been silent too long; what the server refused it for is passed on."""
        each = zip(found.waits_for, found.silent_seconds, found.troubles, strict=True)
        gone = [(name, trouble) for name, seconds, trouble in each if seconds > self._peer_timeout]
        if not gone:
            return
        names = ", ".join(repr(name) for name, _ in gone)
        reasons = "".join(f"; the server refused {name!r}: {trouble}" for name, trouble in gone if trouble)
        raise PeerTimeout(
            f"party {self._address.party!r} waited {self._peer_timeout:g} s to align its rows, but nothing is "
            f"heard of {names}{reasons or '; see what holds it up, then run the same command again'}"
        )

    def close(self) -> None:
        """Hang up."""
        self._closed.set()
        self._channel.close()

    def _call(self, method: str, request: bytes) -> bytes:
        """Call until the server answers; what it refuses is raised."""
        call: Any = self._channel.unary_unary(method)
        began = time.monotonic()
        while True:
            try:
                reply: bytes = call(request, timeout=_CALL_SECONDS, metadata=call_metadata(self._address))
            except grpc.RpcError as error:
                final = permanent_error(self._address, error)
                if final is not None:
                    raise final from None
                if time.monotonic() - began > self._peer_timeout:
                    raise no_server(self._address, self._peer_timeout, error_text(error)) from None
                time.sleep(_PAUSE)
            else:
                self.bytes_sent += len(request)
                self.bytes_received += len(reply)
                return reply

    def _show_life(self) -> None:
        call: Any = self._channel.unary_unary(ALIVE)
        while not self._closed.wait(_ALIVE_SECONDS):
            try:
                call(b"", timeout=_ALIVE_SECONDS, metadata=call_metadata(self._address))
            except (grpc.RpcError, ValueError):  # a closed channel is a ValueError
                continue
