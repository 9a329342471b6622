"""A party's channel over gRPC: one two-way stream, made anew whenever it breaks, and calls for the alignment."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import grpc

from fdml.errors import ExchangeError, FdmlError, MessageRefused, ServerUnreachable
from fdml.events import Listener
from fdml.party.channel import Incoming, ToServer
from fdml.party.delivery import Delivery
from fdml.protocol.alignment_messages import AlignmentMessage, Fetch, Post
from fdml.protocol.messages import FromParty, Hello, Push
from fdml.protocol.wire import decode_from_server, encode_from_party
from fdml.settings import RunSettings, run_hash
from fdml.transport.grpc_alignment import GrpcAlignment
from fdml.transport.grpc_endpoint import (
    JOIN,
    Endpoint,
    Trouble,
    call_metadata,
    permanent_error,
    trouble_of,
)
from fdml.transport.grpc_known_server import KnownServer
from fdml.transport.pieces import Assembly, check_length, pieces
from fdml.transport.wait_report import WaitReport

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_HELLO_SECONDS = 3.0
"""How long a new stream may take until the server welcomes the party; longer if that was too short."""
_LONGEST_HELLO = 20.0
_LONGEST_LOOK = 0.5
"""A wait that seems to have taken longer than it was asked to means that this process did not run."""
_GOODBYE_SECONDS = 1.0
"""How long the server may take to answer a party that closes its stream."""


class Wakeup:
    """Wakes a party's thread, whichever of its lines has something for it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Of all its lines."""
        self.news: queue.SimpleQueue[None] = queue.SimpleQueue()
        """One item wakes the party's thread, without a condition's further lock."""
        self.is_waiting = False
        """Whether the party's thread waits for it."""

    def wake(self) -> None:
        """Let the party's thread look again, if it waits; the lock must be held."""
        if self.is_waiting:
            self.is_waiting = False
            self.news.put(None)


class GrpcChannel:
    """One party's channel; a thread keeps the stream up while the party computes."""

    def __init__(
        self,
        endpoint: Endpoint,
        run: RunSettings,
        peer_timeout: float,
        on_event: Listener,
        waits: WaitReport | None = None,
        wakeup: Wakeup | None = None,
    ) -> None:
        """`waits` says how long others may be missing before the run is under way: without it, as long as it takes.

        Channels that are waited for together have one `wakeup`.
        """
        self._endpoint = endpoint
        self._run = run
        self._peer_timeout = peer_timeout
        self._waits = waits or WaitReport(endpoint, on_event)
        self._server = KnownServer(endpoint, peer_timeout, on_event)
        self._wakeup = wakeup or Wakeup()
        self._lock = self._wakeup.lock
        self._changed = threading.Condition(self._lock)
        """On which the channel's own thread waits: for room, a pause, the end."""
        self._longest_look = min(_LONGEST_LOOK, self._waits.every, peer_timeout, self._waits.longest)
        self._alignment: GrpcAlignment | None = None
        self._unanswered = 0
        """Alignment requests without an answer."""
        self._aligned: deque[AlignmentMessage] = deque()
        self._delivery: Delivery | None = None
        self._thread: threading.Thread | None = None
        self._outgoing: queue.SimpleQueue[FromParty | None] | None = None
        self._call: grpc.Call | None = None
        self._error: FdmlError | None = None
        self._closed = False
        self._worked = False
        """Whether any server has ever welcomed the party."""
        self.bytes_sent = 0
        """Of messages of the stream, each time that they were sent."""
        self.bytes_received = 0
        self.waited_seconds = 0.0
        """In which the party could do nothing until something came."""

    # What a session's driver uses.

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes of alignment messages sent and received."""
        calls = self._alignment
        return (0, 0) if calls is None else (calls.bytes_sent, calls.bytes_received)

    @property
    def has_message(self) -> bool:
        """Whether `poll` would give something."""
        return bool(self._aligned or (self._delivery is not None and self._delivery.inbox))

    @property
    def all_stored(self) -> bool:
        """Whether the server has stored everything that was sent."""
        return not self._unanswered and (self._delivery is None or self._delivery.all_stored)

    def send(self, message: ToServer) -> None:
        """Send a message; it stays in the channel's care until the server has stored it."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if isinstance(message, Hello):
                self._join(message)
            elif isinstance(message, (Post, Fetch)):
                self._unanswered += 1
                self._alignment_calls().request(message)
            elif self._delivery is None:
                raise ExchangeError(f"a {type(message).__name__} before hello; send hello first")
            else:
                self._delivery.enqueue(message)
                if self._outgoing is not None:
                    self._outgoing.put(message)

    def poll(self) -> Incoming | None:
        """The next message that has come, or None."""
        with self._lock:
            if self._aligned:
                return self._aligned.popleft()
            if self._delivery is None:
                return None
            if not self._delivery.has_room:
                self._changed.notify_all()  # there will be, for one that waits
            return self._delivery.poll()

    @property
    def failed(self) -> FdmlError | None:
        """What has ended the line for good."""
        return self._error

    def unstored_pushes(self) -> list[Push]:
        """Pushes that the other side may not have yet."""
        with self._lock:
            return [] if self._delivery is None else self._delivery.unstored_pushes

    def unacknowledged(self) -> list[FromParty]:
        """Messages that the server may not have yet and that a restarted party would not make again."""
        with self._lock:
            return [] if self._delivery is None else self._delivery.unacknowledged

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until `ready()` holds: in a run under way at most the peer timeout, before that as `waits` says.

        Time in which this process itself was stopped or asleep does not count.
        """
        waited, say_at = 0.0, self._waits.every
        while not self._is_there(ready):
            if waited >= self._peer_timeout and self._is_under_way:
                raise self._waits.gave_up(self._peer_timeout, what)
            if self._waits.is_over and not self._is_under_way:
                raise self._waits.gave_up(self._waits.longest, what)
            passed = self._look()
            waited += passed
            self.waited_seconds += passed
            self._waits.passed(passed)
            if waited >= say_at and not ready():
                say_at = waited + self._waits.every
                self._waits.tell(waited)

    def _is_there(self, ready: Callable[[], bool]) -> bool:
        """Whether `ready()` holds; where it does not, whatever comes from now on wakes this thread."""
        with self._lock:
            if ready():
                return True
            if self._error is not None:
                raise self._error
            self._wakeup.is_waiting = True
            return False

    @property
    def _is_under_way(self) -> bool:
        return self._delivery is not None and self._delivery.under_way

    def _look(self) -> float:
        """Let a little time pass; gives how much of it counts."""
        began = time.monotonic()
        try:
            self._wakeup.news.get(timeout=self._longest_look)
        except queue.Empty:
            return self._longest_look
        return min(time.monotonic() - began, self._longest_look)

    def close(self) -> None:
        """End the stream and all threads."""
        with self._changed:
            self._closed = True
            if self._outgoing is not None:
                self._outgoing.put(None)
            self._changed.notify_all()
        if self._alignment is not None:
            self._alignment.close()
        if self._thread is None:
            return
        self._thread.join(_GOODBYE_SECONDS)
        if self._thread.is_alive() and self._call is not None:
            self._call.cancel()
            self._thread.join(_GOODBYE_SECONDS)

    # Alignment.

    def _alignment_calls(self) -> GrpcAlignment:
        if self._alignment is None:
            self._alignment = GrpcAlignment(
                self._endpoint,
                run_hash(self._run),
                answered=self._take_answer,
                failed=self._fail,
                waits=self._waits,
                server=self._server,
            )
        return self._alignment

    def _take_answer(self, answer: AlignmentMessage | None) -> None:
        with self._changed:
            self._unanswered -= 1
            if answer is not None:
                self._aligned.append(answer)
            self._wakeup.wake()

    # The stream.

    def _join(self, hello: Hello) -> None:
        if self._alignment is not None:
            self._alignment.close()
        self._delivery = Delivery(hello, self._run)
        self._thread = threading.Thread(target=self._stay_connected, args=(self._delivery,), name="stream", daemon=True)
        self._thread.start()

    def _stay_connected(self, delivery: Delivery) -> None:
        pause, hello = _FIRST_PAUSE, _HELLO_SECONDS
        while not self._closed:
            try:
                self._hold_one_stream(delivery, hello)
            except grpc.RpcError as error:
                self._note(error, hello)
                if error.code() is grpc.StatusCode.CANCELLED:
                    hello = min(1.5 * hello, _LONGEST_HELLO)
            except MessageRefused as refused:
                self._fail(ExchangeError(f"{self._endpoint.place} is not one of ours: {refused}"))
            except ExchangeError as error:
                self._fail(error)
            if self._error is not None:
                return
            if delivery.welcomed:
                pause, hello = _FIRST_PAUSE, _HELLO_SECONDS
            with self._changed:
                self._outgoing = None
                if not self._closed:
                    self._changed.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _hold_one_stream(self, delivery: Delivery, hello: float) -> None:
        outgoing: queue.SimpleQueue[FromParty | None] = queue.SimpleQueue()
        with self._server.open() as channel:
            join: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
                JOIN, request_serializer=None, response_deserializer=None
            )
            with self._changed:
                if self._closed:
                    return
                for message in delivery.connect():
                    outgoing.put(message)
                self._outgoing = outgoing
                call = self._call = join(self._encoded(outgoing), metadata=call_metadata(self._endpoint))
            watchdog = threading.Timer(hello, lambda: None if delivery.welcomed else call.cancel())
            watchdog.start()
            try:
                self._receive_all(delivery, call)
            finally:
                watchdog.cancel()
                outgoing.put(None)
                call.cancel()

    def _receive_all(self, delivery: Delivery, call: Iterable[bytes]) -> None:
        """Take in what comes, no faster than the party uses it and no longer than the run has use for."""
        assembly, sender = Assembly(), self._endpoint.place
        for piece in call:
            self._server.prove()
            self._server.look()
            self.bytes_received += len(piece)
            check_length(assembly.size + len(piece), delivery.largest_message, sender)
            raw = assembly.add(piece)
            if raw is None:
                continue
            received = decode_from_server(raw)
            with self._lock:
                delivery.receive(received)
                self._worked |= delivery.welcomed
                self._wakeup.wake()
                while not (delivery.has_room or self._closed):
                    self._changed.wait()
            self._waits.waits_for(delivery.waits_for)

    def _note(self, error: grpc.RpcError, hello: float) -> None:
        """Remember what went wrong, for good if trying again would not help."""
        permanent = permanent_error(self._endpoint, error)
        if isinstance(permanent, ServerUnreachable) and (self._server.forget() or self._worked):
            self._waits.trouble(trouble_of(self._endpoint, error))  # a new certificate, or the line spoils bytes
        elif permanent is not None:
            self._fail(permanent)
        elif error.code() is grpc.StatusCode.CANCELLED:
            text = f"it took the call but did not answer within {hello:g} s"
            self._waits.trouble(Trouble(self._endpoint.target, text, called=self._endpoint.called))
        else:
            self._waits.trouble(trouble_of(self._endpoint, error))

    def _fail(self, error: FdmlError) -> None:
        with self._lock:
            self._error = error
            self._wakeup.wake()

    def _encoded(self, outgoing: queue.SimpleQueue[FromParty | None]) -> Iterator[bytes]:
        while (message := outgoing.get()) is not None:
            for piece in pieces(encode_from_party(message)):
                self.bytes_sent += len(piece)
                yield piece
