"""How fdml uses gRPC: method names, options of both sides, and gRPC's errors as ours."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

import grpc

from fdml.errors import ExchangeError, MessageRefused, Refusal, ServerUnreachable, SettingsError
from fdml.protocol.identity import Credentials, host_name
from fdml.protocol.limits import PIECE
from fdml.protocol.quoting import shown
from fdml.transport.line_trouble import in_plain_words

JOIN = "/fdml.Exchange/Join"
STATUS = "/fdml.Exchange/Status"
POST = "/fdml.Exchange/Post"
FETCH = "/fdml.Exchange/Fetch"
ALIVE = "/fdml.Exchange/Alive"
CERTIFICATE = "/fdml.Exchange/Certificate"
PROPOSE = "/fdml.Exchange/Propose"
DECIDE = "/fdml.Exchange/Decide"
RUNS = "/fdml.Exchange/Runs"
RELAY = "/fdml.Exchange/Relay"
TUNNEL = "/fdml.Exchange/Tunnel"
PARTY_HEADER = "fdml-party"
"""Names the party where there is no certificate: on plain lines, which only loopback may have."""
RUN_HEADER = "fdml-run"
"""Names the run that a call belongs to, as a server hosts many."""
ROLE_HEADER = "fdml-role"
"""On a stream of questions: whether the caller answers them or asks."""
ANSWERS = "answers"

_UNANSWERED_MS = 4000
"""A line on which nothing sent is acknowledged for this long is given up: well within a cut of 10 s."""
_WINDOW = 8 * 2**20
"""Bytes under way on a line: enough for 600 Mbit/s at a round trip of 100 ms."""
_LONGEST_REASON = 400
"""Letters of the server's reason for a refusal that are shown: it says what to do as well."""
_FOREIGN = ("TSI_PROTOCOL_FAILURE", "verification check failed")
"""Parts of gRPC's errors where whoever answers shows no certificate we trust, or uses no TLS."""

STATUS_OF: dict[Refusal, grpc.StatusCode] = {
    Refusal.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Refusal.NOT_PERMITTED: grpc.StatusCode.PERMISSION_DENIED,
    Refusal.MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Refusal.CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Refusal.GAP: grpc.StatusCode.OUT_OF_RANGE,
    Refusal.FENCED: grpc.StatusCode.ABORTED,
    Refusal.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refusal.NOT_STORED: grpc.StatusCode.DATA_LOSS,
    Refusal.NO_RUN: grpc.StatusCode.NOT_FOUND,
}
"""The status a refusal travels as."""
REFUSAL_OF = {status: refusal for refusal, status in STATUS_OF.items()}


@dataclass(frozen=True)
class Endpoint:
    """Where the server is and how to speak to it; without credentials the line is plain."""

    target: str
    federation: str
    party: str
    credentials: Credentials | None
    server_key: str = ""
    """The fingerprint of the server's key, by federation.toml; without it any server of the authority will do."""
    run: str = ""
    """The run that is spoken of; empty for calls that belong to none."""
    answers_as: str = ""
    """The party that answers there, where there is no server."""

    @property
    def called(self) -> str:
        """Who answers there, for people."""
        return f"party {self.answers_as!r}" if self.answers_as else "server"

    @property
    def place(self) -> str:
        """Who answers there, and where."""
        return f"the {self.called} at {self.target}"


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
    """The options by which either side finds that a line is dead.

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
    """The options that bound how much either side may send before it is read.

    Left to itself gRPC guesses that from pings it adds to the data, which took a
    twentieth of the processor time of a step.
    """
    return [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", _WINDOW)]


def size_options() -> list[tuple[str, int | str]]:
    """The options that bound what the other side can make this one hold: no long piece, and nothing to unpack."""
    return [("grpc.max_receive_message_length", PIECE), ("grpc.compression_enabled_algorithms_bitset", 1)]


def open_channel(address: Endpoint, peer_timeout: float) -> grpc.Channel:
    """A channel to the server."""
    options = [*keepalive_options(peer_timeout), *flow_options(), *size_options(), ("grpc.enable_retries", 0)]
    if is_loopback(address.target):
        options.append(("grpc.enable_http_proxy", 0))
    if address.credentials is None:
        return grpc.insecure_channel(address.target, options)
    ours = grpc.ssl_channel_credentials(
        address.credentials.authority, address.credentials.key, address.credentials.certificate
    )
    options.append(("grpc.ssl_target_name_override", host_name(address.federation, address.answers_as)))
    return grpc.secure_channel(address.target, ours, options)


def error_text(error: grpc.RpcError) -> str:
    """What went wrong, in gRPC's or the server's words."""
    return shown(error.details() or str(error.code()), _LONGEST_REASON)


def permanent_error(address: Endpoint, error: grpc.RpcError) -> ExchangeError | None:
    """The error that trying again would not help with; None if it might."""
    details, refusal = error_text(error), REFUSAL_OF.get(error.code())
    if refusal is Refusal.NOT_STORED:
        return None
    if refusal is not None:
        return MessageRefused(details, refusal)
    if any(sign in details for sign in _FOREIGN):
        return ServerUnreachable(
            f"what answers at {address.target} is no {address.called} of federation {address.federation!r}: "
            f"{_plainly(address, error)}; check the address and the keys"
        )
    return None


@dataclass(frozen=True)
class Trouble:
    """Why the server does not do what it is asked; asking again may help."""

    target: str
    text: str
    """For a person."""
    refusal: str = ""
    """What the server said, where it has answered."""
    called: str = "server"
    """Who should answer there."""

    def __str__(self) -> str:
        """What is said while a party tries again."""
        return self.refusal or f"no {self.called} at {self.target} yet: {self.text}"

    def gave_up(self, seconds: float) -> ExchangeError:
        """What to raise after trying again for this many seconds."""
        if self.refusal:
            return MessageRefused(self.refusal, Refusal.NOT_STORED)
        start = "`fdml serve`" if self.called == "server" else "its `fdml join` or `fdml up`"
        return ServerUnreachable(
            f"no {self.called} at {self.target} for {seconds:g} s ({self.text}); "
            f"start {start}, check the address, then run the same command again"
        )


def trouble_of(address: Endpoint, error: grpc.RpcError) -> Trouble:
    """What a failed call says of the server."""
    if REFUSAL_OF.get(error.code()) is Refusal.NOT_STORED:
        return Trouble(address.target, error_text(error), error_text(error), address.called)
    return Trouble(address.target, _plainly(address, error), called=address.called)


def _plainly(address: Endpoint, error: grpc.RpcError) -> str:
    return in_plain_words(error_text(error), address.target, plain=address.credentials is None)


def call_metadata(address: Endpoint) -> tuple[tuple[str, str], ...]:
    """What every call carries along."""
    names = {PARTY_HEADER: address.party, **({RUN_HEADER: address.run} if address.run else {})}
    return tuple((header, name.encode().hex()) for header, name in names.items())
