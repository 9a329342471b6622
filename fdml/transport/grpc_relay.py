"""A party's stream of questions about predictions: it answers them for as long as it stands by, or asks some."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import grpc

from fdml.errors import ExchangeError, FdmlError, MessageRefused, ServerUnreachable
from fdml.events import Listener
from fdml.protocol.prediction_messages import MOST_MESSAGE, Question, Relayed, Reply
from fdml.protocol.prediction_wire import decode_relayed, encode_relayed
from fdml.transport.grpc_endpoint import (
    ANSWERS,
    RELAY,
    ROLE_HEADER,
    Endpoint,
    call_metadata,
    permanent_error,
    trouble_of,
)
from fdml.transport.grpc_known_server import KnownServer
from fdml.transport.pieces import Assembly, check_length, pieces

_PEER_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Between two tries to reach the server: a party that comes back is to be asked again within seconds."""
_GOODBYE_SECONDS = 2.0


class _Stream:
    """One open stream: messages go out through a queue, and those that come are given to `take`."""

    def __init__(self, channel: grpc.Channel, endpoint: Endpoint, *, answers: bool) -> None:
        call: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            RELAY, request_serializer=None, response_deserializer=None
        )
        role = ((ROLE_HEADER, ANSWERS.encode().hex()),) if answers else ()
        self._outgoing: queue.SimpleQueue[Relayed | None] = queue.SimpleQueue()
        self._sender = endpoint.place
        self._call: Any = call(self._encoded(), metadata=(*call_metadata(endpoint), *role))

    def send(self, message: Relayed) -> None:
        """Put a message on its way."""
        self._outgoing.put(message)

    def messages(self) -> Iterator[Relayed]:
        """What comes, until the stream ends; raises gRPC's errors."""
        assembly = Assembly()
        for piece in self._call:
            check_length(assembly.size + len(piece), MOST_MESSAGE, self._sender)
            raw = assembly.add(piece)
            if raw is not None:
                yield decode_relayed(raw)

    def close(self) -> None:
        """End it."""
        self._outgoing.put(None)
        self._call.cancel()

    def _encoded(self) -> Iterator[bytes]:
        while (message := self._outgoing.get()) is not None:
            yield from pieces(encode_relayed(message))


def answer_questions(
    endpoint: Endpoint,
    answer: Callable[[Question], Reply],
    is_over: Callable[[], bool],
    *,
    on_event: Listener = lambda _: None,
    trouble: Callable[[ExchangeError | None], None] = lambda _: None,
) -> None:
    """Answer questions until `is_over()` holds, one after the other; a line that fails is made again.

    `trouble` hears why there is no line just now, and None once there is one.
    """
    server, pause = KnownServer(endpoint, _PEER_SECONDS, on_event), _FIRST_PAUSE
    while not is_over():
        try:
            with server.open() as channel:
                stream = _Stream(channel, endpoint, answers=True)
                with _ended_when(is_over, stream):
                    trouble(None)
                    for message in stream.messages():
                        server.prove()
                        server.look()
                        pause = _FIRST_PAUSE
                        if isinstance(message, Question):
                            stream.send(answer(message))
        except grpc.RpcError as error:
            permanent = permanent_error(endpoint, error)
            if isinstance(permanent, ServerUnreachable):
                server.forget()
            if not is_over():
                trouble(_explained(endpoint, error))
        except ExchangeError as error:
            trouble(error)
        _sleep(pause, is_over)
        pause = min(2 * pause, _LONGEST_PAUSE)


class _ended_when:  # noqa: N801 - reads as a word of the `with` statement
    """Ends a stream once something is over; a stream on which nothing comes would not look."""

    def __init__(self, is_over: Callable[[], bool], stream: _Stream) -> None:
        self._is_over, self._stream = is_over, stream
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="relay watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._stream.close()
        self._thread.join(_GOODBYE_SECONDS)

    def _watch(self) -> None:
        while not self._left.wait(0.1):
            if self._is_over():
                self._stream.close()
                return


def _sleep(seconds: float, is_over: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not is_over():
        time.sleep(min(0.1, seconds))


class GrpcQuestions:
    """An asker's line: questions of several threads at once, each with a deadline. Use it as a context."""

    def __init__(self, endpoint: Endpoint, on_event: Listener = lambda _: None) -> None:
        self._endpoint = endpoint
        self._server = KnownServer(endpoint, _PEER_SECONDS, on_event)
        self._changed = threading.Condition()
        self._stream: _Stream | None = None
        self._channel: grpc.Channel | None = None
        self._replies: dict[bytes, dict[str, Reply]] = {}
        """By number of a question that is waited for: what has come."""
        self._trouble: FdmlError | None = None

    def __enter__(self) -> GrpcQuestions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the line; the next question opens another."""
        with self._changed:
            stream, channel, self._stream, self._channel = self._stream, self._channel, None, None
        if stream is not None:
            stream.close()
        if channel is not None:
            channel.close()

    def exchange(self, questions: Sequence[Question], seconds: float) -> dict[str, Reply]:
        """Ask each party its question; the replies by party that come within so many seconds.

        Raises why the server cannot be asked.
        """
        number, parties = questions[0].number, {each.party for each in questions}
        deadline = time.monotonic() + seconds
        with self._changed:
            self._replies[number] = {}
            self._trouble = None
            try:
                stream = self._open_stream()
                self._server.look()
                for question in questions:
                    stream.send(question)
                while self._replies[number].keys() < parties:
                    left = deadline - time.monotonic()
                    if self._trouble is not None:
                        raise self._trouble
                    if left <= 0:
                        break
                    self._changed.wait(left)
                return self._replies[number]
            finally:
                del self._replies[number]

    def _open_stream(self) -> _Stream:
        if self._stream is None:
            if self._channel is not None:
                self._channel.close()  # the line before it has ended
                self._channel = None
            try:
                self._channel = self._server.open()
            except grpc.RpcError as error:
                raise _explained(self._endpoint, error) from None
            self._stream = _Stream(self._channel, self._endpoint, answers=False)
            threading.Thread(target=self._take, args=(self._stream,), name="replies", daemon=True).start()
        return self._stream

    def _take(self, stream: _Stream) -> None:
        trouble: FdmlError = ServerUnreachable(f"{self._endpoint.place} has ended the line; run the same command again")
        try:
            self._take_in(stream.messages())
        except grpc.RpcError as error:
            trouble = _explained(self._endpoint, error)
        except MessageRefused as refused:
            trouble = refused
        with self._changed:
            if isinstance(trouble, ServerUnreachable):
                self._server.forget()  # it may come back with a renewed certificate
            if self._stream is stream:
                self._stream, self._trouble = None, trouble
                self._changed.notify_all()

    def _take_in(self, messages: Iterable[Relayed]) -> None:
        for message in messages:
            self._server.prove()
            with self._changed:
                if isinstance(message, Reply) and message.number in self._replies:
                    self._replies[message.number][message.party] = message
                    self._changed.notify_all()


def _explained(endpoint: Endpoint, error: grpc.RpcError) -> ExchangeError:
    return permanent_error(endpoint, error) or trouble_of(endpoint, error).gave_up(0.0)
