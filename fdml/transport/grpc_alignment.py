"""Alignment requests over gRPC: short calls, one after the other, tried again until the server answers."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import grpc

from fdml.errors import ExchangeError, FdmlError, ServerUnreachable
from fdml.protocol.alignment_calls import (
    FetchCall,
    PostCall,
    decode_answer,
    encode_fetch,
    encode_post,
)
from fdml.protocol.alignment_messages import AlignmentMessage, AlignmentRequest, Fetch
from fdml.protocol.alignment_wire import decode_alignment
from fdml.protocol.envelopes import invalid
from fdml.protocol.limits import CALL, CEILING
from fdml.transport.grpc_endpoint import (
    ALIVE,
    FETCH,
    POST,
    Endpoint,
    call_metadata,
    permanent_error,
    trouble_of,
)
from fdml.transport.grpc_known_server import KnownServer
from fdml.transport.pieces import Assembly, check_length, pieces
from fdml.transport.wait_report import WaitReport

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
        *,
        answered: Callable[[AlignmentMessage | None], None],
        failed: Callable[[FdmlError], None],
        waits: WaitReport,
        server: KnownServer,
    ) -> None:
        self._endpoint = endpoint
        self._run_hash = run_hash
        self._answered = answered
        self._failed = failed
        self._waits = waits
        self._requests: queue.SimpleQueue[AlignmentRequest | None] = queue.SimpleQueue()
        self._server = server
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
        """Wait for a message; how long is for whoever waits for this party's channel."""
        raw = encode_fetch(FetchCall.of(request, self._run_hash))
        while True:
            answer = decode_answer(self._call(self._fetch_once, raw))
            self._waits.waits_for(answer.waits_for)
            if answer.message:
                return decode_alignment(answer.message)

    def _call(self, once: Callable[[bytes], bytes], request: bytes) -> bytes:
        """Call until the server answers or this is closed; what it refuses is raised."""
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
                self._waits.trouble(trouble_of(self._endpoint, error))
                if self._closed.wait(_PAUSE):
                    raise ValueError("the alignment is over") from None
            else:
                self._worked = True
                self._waits.answered()
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
