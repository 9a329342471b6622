"""Alignment requests over gRPC: short calls, one after the other, tried again until the server answers."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from fdml.errors import ExchangeError, FdmlError, PeerTimeout, ServerUnreachable
from fdml.protocol.alignment_calls import (
    FetchAnswer,
    FetchCall,
    PostCall,
    decode_answer,
    encode_fetch,
    encode_post,
)
from fdml.protocol.alignment_messages import AlignmentMessage, AlignmentRequest, Fetch
from fdml.protocol.alignment_wire import decode_alignment
from fdml.protocol.limits import CALL, CEILING
from fdml.protocol.wire import invalid
from fdml.transport.grpc_endpoint import (
    ALIVE,
    FETCH,
    POST,
    Endpoint,
    call_metadata,
    gave_up,
    permanent_error,
)
from fdml.transport.grpc_known_server import KnownServer
from fdml.transport.pieces import Assembly, check_length, pieces

_CALL_SECONDS = 600.0
"""How long one call may take, the transfer of a large set over a slow line included; a dead line is noticed before."""
_PAUSE = 0.2
_ALIVE_SECONDS = 1.0


class GrpcAlignment:
    """Makes a party's alignment calls in a thread of its own.

    Another thread calls the server every second, so that the party does not count
    as silent while it computes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        run_hash: bytes,
        peer_timeout: float,
        *,
        answered: Callable[[AlignmentMessage | None], None],
        failed: Callable[[FdmlError], None],
        waiting: Callable[[tuple[str, ...]], None],
        server: KnownServer | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._run_hash = run_hash
        self._peer_timeout = peer_timeout
        self._answered = answered
        self._failed = failed
        self._waiting = waiting
        self._requests: queue.SimpleQueue[AlignmentRequest | None] = queue.SimpleQueue()
        self._server = server or KnownServer(endpoint, peer_timeout)
        self._channel: grpc.Channel | None = None
        self._opening = threading.Lock()
        self._closed = threading.Event()
        self._worked = False
        """Whether the server has ever answered."""
        self.bytes_sent = 0
        self.bytes_received = 0
        for work in (self._work, self._show_life):
            threading.Thread(target=work, name=f"alignment {work.__name__}", daemon=True).start()

    def request(self, request: AlignmentRequest) -> None:
        """Make a call once all earlier ones are done; `answered` is called with what came back."""
        self._requests.put(request)

    def close(self) -> None:
        """End both threads; what is on its way is given up."""
        self._closed.set()
        self._requests.put(None)
        self._hang_up()

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                answer = self._fetch(request) if isinstance(request, Fetch) else None
                if not isinstance(request, Fetch):
                    self._call(self._post_once, encode_post(PostCall.of(request, self._run_hash)))
            except FdmlError as error:
                self._failed(error)
                return
            except ValueError:  # the channel was closed meanwhile
                return
            self._answered(answer)

    def _fetch(self, request: Fetch) -> AlignmentMessage:
        """Wait for a message; who is waited for may take long, but not be silent longer than the peer timeout."""
        raw = encode_fetch(FetchCall.of(request, self._run_hash))
        began = time.monotonic()
        while True:
            answer = decode_answer(self._call(self._fetch_once, raw))
            if answer.message:
                return decode_alignment(answer.message)
            self._waiting(answer.waits_for)
            if time.monotonic() - began > self._peer_timeout:
                self._check_silent(answer)

    def _check_silent(self, answer: FetchAnswer) -> None:
        """Raise if anyone waited for has been silent too long; why the server refused it is passed on."""
        each = zip(answer.waits_for, answer.silent_seconds, answer.refusals, strict=True)
        gone = [(name, refusal) for name, seconds, refusal in each if seconds > self._peer_timeout]
        if not gone:
            return
        names = ", ".join(repr(name) for name, _ in gone)
        reasons = "".join(f"; the server refused {name!r}: {refusal}" for name, refusal in gone if refusal)
        raise PeerTimeout(
            f"party {self._endpoint.party!r} waited {self._peer_timeout:g} s to align its rows, but nothing is "
            f"heard of {names}{reasons or '; see what holds it up, then run the same command again'}"
        )

    def _call(self, once: Callable[[bytes], bytes], request: bytes) -> bytes:
        """Call until the server answers; what it refuses is raised."""
        began = time.monotonic()
        while True:
            try:
                reply = once(request)
            except grpc.RpcError as error:
                permanent = permanent_error(self._endpoint, error)
                if isinstance(permanent, ServerUnreachable) and (self._server.forget() or self._worked):
                    self._hang_up()  # the server may have a new certificate, or the line spoils bytes
                    permanent = None
                if permanent is not None:
                    raise permanent from None
                if time.monotonic() - began > self._peer_timeout:
                    raise gave_up(self._endpoint, self._peer_timeout, error) from None
                self._closed.wait(_PAUSE)
            else:
                self._worked = True
                self._server.prove()
                self.bytes_sent += len(request)
                self.bytes_received += len(reply)
                return reply

    def _post_once(self, request: bytes) -> bytes:
        post: Any = self._line().stream_unary(POST)
        reply: bytes = post(pieces(request), timeout=_CALL_SECONDS, metadata=call_metadata(self._endpoint))
        return reply

    def _fetch_once(self, request: bytes) -> bytes:
        fetch: Any = self._line().unary_stream(FETCH)
        answer = Assembly()
        for piece in fetch(request, timeout=_CALL_SECONDS, metadata=call_metadata(self._endpoint)):
            check_length(answer.size + len(piece), CEILING + CALL, f"the server at {self._endpoint.target}")
            whole = answer.add(piece)
            if whole is not None:
                return whole
        raise invalid("an answer that ended before its last piece")

    def _line(self) -> grpc.Channel:
        """The channel, opened at the first call, and anew after it was given up."""
        with self._opening:
            if self._channel is None and not self._closed.is_set():
                self._channel = self._server.open()
            if self._channel is None:
                raise ValueError("the alignment is over")
            self._server.look()
            return self._channel

    def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _show_life(self) -> None:
        while not self._closed.wait(_ALIVE_SECONDS):
            try:
                call: Any = self._line().unary_unary(ALIVE)
                call(b"", timeout=_ALIVE_SECONDS, metadata=call_metadata(self._endpoint))
            except (grpc.RpcError, ExchangeError, ValueError):  # a closed channel is a ValueError
                continue
