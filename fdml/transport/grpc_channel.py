"""A party's line over gRPC: one two-way stream, made anew whenever it breaks."""

from __future__ import annotations

import ipaddress
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import grpc

from fdml.errors import ExchangeError, MessageRefused, PeerTimeout, Refusal, ServerUnreachable, SettingsError
from fdml.monitor.status import RunStatus
from fdml.party.delivery import Delivery
from fdml.protocol.identity import Credentials, host_name
from fdml.protocol.messages import (
    Checkpointed,
    Finished,
    FromParty,
    Gradient,
    HeldOutPredictions,
    HeldOutTotal,
    Labels,
    Metrics,
    Push,
    Stop,
    Stopped,
    Total,
)
from fdml.protocol.wire import decode_from_server, encode_from_party
from fdml.transport.status_wire import decode_status

T = TypeVar("T")

JOIN = "/fdml.Exchange/Join"
STATUS = "/fdml.Exchange/Status"
POST = "/fdml.Exchange/Post"
FETCH = "/fdml.Exchange/Fetch"
ALIVE = "/fdml.Exchange/Alive"
PARTY_HEADER = "fdml-party"
"""Names the party where there is no certificate: on plain lines, which only loopback may have."""

_UNANSWERED_MS = 4000
"""A line on which nothing sent is acknowledged for so long is given up: well within a cut of 10 s."""
_WINDOW = 8 * 2**20
"""Bytes under way on a line: enough for 600 Mbit/s at a round trip of 100 ms."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_HELLO_SECONDS = 3.0
"""How long a new line may take until the server welcomes the party; longer if that was too short."""
_LONGEST_HELLO = 20.0
_LONGEST_LOOK = 0.5
"""A wait that seems to have taken longer than it was asked to means that this process did not run."""
_GOODBYE_SECONDS = 1.0
"""How long the server may take to answer a party that hangs up."""
_FOREIGN = ("TSI_PROTOCOL_FAILURE", "verification check failed")
"""How gRPC says that whoever answers does not show a certificate we trust, or speaks no TLS."""

STATUS_OF: dict[Refusal, grpc.StatusCode] = {
    Refusal.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Refusal.NOT_PERMITTED: grpc.StatusCode.PERMISSION_DENIED,
    Refusal.MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Refusal.CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Refusal.GAP: grpc.StatusCode.OUT_OF_RANGE,
    Refusal.FENCED: grpc.StatusCode.ABORTED,
    Refusal.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""The status a refusal travels as."""
_REFUSAL_OF = {status: refusal for refusal, status in STATUS_OF.items()}


@dataclass(frozen=True)
class Endpoint:
    """Where the server is and how to speak to it; without credentials the line is plain."""

    target: str
    run: str
    party: str
    credentials: Credentials | None


def is_loopback(target: str) -> bool:
    """Whether an address cannot be reached from outside this machine."""
    host = target.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_loopback(address: str) -> None:
    """Raise unless the address cannot be reached from outside this machine."""
    if not is_loopback(address):
        raise SettingsError(f"plain lines are for loopback only, and {address!r} is not; leave --plain out")


def keepalive_options(peer_timeout: float) -> list[tuple[str, int | str]]:
    """The options with which either side notices that a line is dead.

    A line whose packets are not acknowledged is dead after `_UNANSWERED_MS`. One
    that is only slow delivers a ping behind all that was sent before it, so a
    ping may take as long as anyone would wait.
    """
    return [
        ("grpc.keepalive_time_ms", 2000),
        ("grpc.keepalive_timeout_ms", _UNANSWERED_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.ping_timeout_ms", int(1000 * max(peer_timeout, 1.0))),
    ]


def flow_options() -> list[tuple[str, int | str]]:
    """The options by which either side may send so much before it is read.

    Left to itself gRPC guesses that from pings it adds to the data, which took a
    twentieth of the processor time of a step.
    """
    return [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", _WINDOW)]


def open_channel(address: Endpoint, peer_timeout: float) -> grpc.Channel:
    """A channel to the server."""
    options = keepalive_options(peer_timeout) + flow_options()
    options += [("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
    if is_loopback(address.target):
        options.append(("grpc.enable_http_proxy", 0))
    if address.credentials is None:
        return grpc.insecure_channel(address.target, options)
    ours = grpc.ssl_channel_credentials(
        address.credentials.authority, address.credentials.key, address.credentials.certificate
    )
    options.append(("grpc.ssl_target_name_override", host_name(address.run)))
    return grpc.secure_channel(address.target, ours, options)


def ask_status(address: Endpoint, seconds: float = 5.0) -> RunStatus:
    """The status of a run, from its server."""
    with open_channel(address, seconds) as channel:
        ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(STATUS)
        try:
            raw = ask(b"", timeout=seconds, metadata=call_metadata(address))
        except grpc.RpcError as error:
            refusal = _REFUSAL_OF.get(error.code())
            if refusal is not None:
                raise MessageRefused(f"the server at {address.target} says: {error.details()}", refusal) from None
            raise ServerUnreachable(
                f"no server of run {address.run!r} answers at {address.target} ({error.details()}); "
                f"is `fdml serve` running?"
            ) from None
    return decode_status(raw)


def error_text(error: grpc.RpcError) -> str:
    """What went wrong, in gRPC's words."""
    return error.details() or str(error.code())


def permanent_error(address: Endpoint, error: grpc.RpcError) -> ExchangeError | None:
    """The error that trying again would not help with; None if it might."""
    details, refusal = error_text(error), _REFUSAL_OF.get(error.code())
    if refusal is not None:
        return MessageRefused(details, refusal)
    if any(sign in details for sign in _FOREIGN):
        return ServerUnreachable(
            f"what answers at {address.target} is no server of run {address.run!r}, or has keys of another authority "
            f"({details}); check the address and the keys"
        )
    return None


def no_server(address: Endpoint, seconds: float, trouble: str) -> ServerUnreachable:
    """Nobody has answered for so long."""
    return ServerUnreachable(
        f"no server at {address.target} for {seconds:g} s ({trouble}); "
        f"start `fdml serve`, check the address, then run the same command again"
    )


def call_metadata(address: Endpoint) -> tuple[tuple[str, str], ...]:
    """What every call carries along."""
    return ((PARTY_HEADER, address.party.encode().hex()),)


class GrpcChannel:
    """One party's line; a thread keeps it up while the party computes."""

    def __init__(self, address: Endpoint, courier: Delivery, peer_timeout: float) -> None:
        self._address = address
        self._courier = courier
        self._peer_timeout = peer_timeout
        self._changed = threading.Condition()
        self._outgoing: queue.SimpleQueue[FromParty | None] | None = None
        self._call: grpc.Call | None = None
        self._error: ExchangeError | None = None
        self._trouble = "it never answered"
        self._closed = False
        self._kept = -1
        self.waited = 0.0
        """Seconds spent waiting for totals."""
        self._thread = threading.Thread(target=self._stay_connected, name="line", daemon=True)
        self._thread.start()

    def send(self, message: Push | Gradient | Stop) -> None:
        """Send what has passed the guard."""
        self._post(message)

    def receive(self, step: int) -> Total | Gradient | Stopped:
        """Wait for the answer to a step."""
        began = time.monotonic()

        self._wait(lambda: self._courier.has(step) or None, f"at step {step} for {{}}")
        with self._changed:
            answer = self._courier.take(step)
        self.waited += time.monotonic() - began
        if answer is None:
            raise ExchangeError(f"the answer to step {step} was taken by another thread")
        return answer

    def keep(self, step: int) -> None:
        """Tell the server which totals will not be asked for again."""
        if step > self._kept:
            self._kept = step
            self._post(Checkpointed(step))

    def give_labels(self, labels: Labels) -> None:
        """Hand the labels to the server, for the other parties."""
        self._post(labels)

    def await_labels(self) -> Labels:
        """Wait for the label party's labels."""
        return self._wait(lambda: self._courier.labels, "for {} to give the labels")

    def send_trial(self, trial: HeldOutPredictions) -> None:
        """Send the predictions of the held-out rows."""
        self._post(trial)

    @property
    def stopped_by(self) -> str:
        """Who ended the run early, as a sentence; empty if nobody did."""
        stopped = self._courier.stopped
        return "" if stopped is None else f"the privacy budget of party {stopped.party!r} is spent"

    def verdicts(self, epochs: Iterable[int]) -> list[HeldOutTotal]:
        """The sums of held-out predictions that have come for these epochs; others are left for later."""
        with self._changed:
            return self._courier.take_verdicts(epochs)

    def await_verdict(self, epoch: int, blocks: int) -> HeldOutTotal | None:
        """Wait for the sum of the held-out predictions of one epoch of so many blocks; None if none is to come.

        It was evaluated before this start, or the run ended before all parties were through with the epoch.
        """
        what = f"for {{}} to predict the held-out rows of epoch {epoch}"
        self._wait(lambda: self._courier.is_settled(epoch, blocks) or None, what)
        with self._changed:
            return self._courier.verdicts.pop(epoch, None)

    def report(self, metrics: Metrics) -> None:
        """Tell the server what was found at the end of an epoch."""
        self._post(metrics)

    def unacknowledged(self) -> list[FromParty]:
        """Gradients, trials and metrics that the server may not have yet, to be saved with the party's state."""
        with self._changed:
            return self._courier.unacknowledged

    def send_again(self, unacknowledged: Iterable[FromParty]) -> None:
        """Send what was saved with the party's state."""
        for letter in unacknowledged:
            self._post(letter)

    def finish(self, model_hash: bytes) -> None:
        """Say that this party has trained to the end, and wait until the server has stored everything."""
        self._post(Finished(model_hash))
        self.flush()

    def flush(self) -> None:
        """Wait until the server has stored everything."""
        self._wait(lambda: True if self._courier.all_stored else None, "for {} to store the last messages")

    def close(self) -> None:
        """Hang up."""
        with self._changed:
            self._closed = True
            if self._outgoing is not None:
                self._outgoing.put(None)
            self._changed.notify_all()
        self._thread.join(_GOODBYE_SECONDS)
        if self._thread.is_alive() and self._call is not None:
            self._call.cancel()
            self._thread.join(_GOODBYE_SECONDS)

    def _post(self, message: FromParty) -> None:
        with self._changed:
            if self._error is not None:
                raise self._error
            self._courier.post(message)
            if self._outgoing is not None:
                self._outgoing.put(message)

    def _wait(self, look: Callable[[], T | None], what: str) -> T:
        """Wait until there is something; `what` says for what, with a place for whom.

        Time in which this process itself was stopped or asleep does not count.
        """
        left = self._peer_timeout
        with self._changed:
            while (found := look()) is None:
                if self._error is not None:
                    raise self._error
                if left <= 0:
                    raise self._gave_up(what)
                began, longest = time.monotonic(), min(left, _LONGEST_LOOK)
                self._changed.wait(longest)
                left -= min(time.monotonic() - began, longest)
        return found

    def _gave_up(self, what: str) -> ExchangeError | PeerTimeout:
        if not self._courier.welcomed:
            return no_server(self._address, self._peer_timeout, self._trouble)
        names = ", ".join(repr(name) for name in self._courier.waits_for) or f"the server at {self._address.target}"
        return PeerTimeout(
            f"party {self._address.party!r} waited {self._peer_timeout:g} s {what.format(names)}; "
            f"see what holds it up, then run the same command again: it goes on where it stopped"
        )

    def _stay_connected(self) -> None:
        pause, hello = _FIRST_PAUSE, _HELLO_SECONDS
        while not self._closed:
            try:
                self._hold_one_line(hello)
            except grpc.RpcError as error:
                self._note(error, hello)
                if error.code() is grpc.StatusCode.CANCELLED:
                    hello = min(1.5 * hello, _LONGEST_HELLO)
            except MessageRefused as refused:
                self._fail(ExchangeError(f"the server at {self._address.target} is not one of ours: {refused}"))
            if self._error is not None:
                return
            if self._courier.welcomed:
                pause, hello = _FIRST_PAUSE, _HELLO_SECONDS
            with self._changed:
                self._outgoing = None
                if not self._closed:
                    self._changed.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _hold_one_line(self, hello: float) -> None:
        outgoing: queue.SimpleQueue[FromParty | None] = queue.SimpleQueue()
        with open_channel(self._address, self._peer_timeout) as channel:
            join: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
                JOIN, request_serializer=None, response_deserializer=None
            )
            with self._changed:
                if self._closed:
                    return
                for message in self._courier.connect():
                    outgoing.put(message)
                self._outgoing = outgoing
                call = self._call = join(_encoded(outgoing), metadata=call_metadata(self._address))
            watchdog = threading.Timer(hello, lambda: None if self._courier.welcomed else call.cancel())
            watchdog.start()
            try:
                for raw in call:
                    heard = decode_from_server(raw)
                    with self._changed:
                        self._courier.hear(heard)
                        self._changed.notify_all()
            finally:
                watchdog.cancel()
                outgoing.put(None)
                call.cancel()

    def _note(self, error: grpc.RpcError, hello: float) -> None:
        """Remember what went wrong, for good if trying again would not help."""
        final = permanent_error(self._address, error)
        if final is not None:
            self._fail(final)
        elif error.code() is grpc.StatusCode.CANCELLED:
            self._trouble = f"it took the call but did not answer within {hello:g} s"
        else:
            self._trouble = error_text(error)

    def _fail(self, error: ExchangeError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()


def _encoded(outgoing: queue.SimpleQueue[FromParty | None]) -> Iterator[bytes]:
    while (message := outgoing.get()) is not None:
        yield encode_from_party(message)
