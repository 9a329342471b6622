"""The two calls of the alignment as bytes: post a message, fetch a message. Each names the run it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.alignment_messages import HASH_BYTES, Fetch, Post
from fdml.protocol.alignment_wire import encode_alignment, kind_of
from fdml.protocol.envelopes import check_names, check_protocol, invalid
from fdml.protocol.messages import PROTOCOL
from fdml.protocol.waited_for import WaitedFor, as_lists, waited_for
from fdml.settings.names import LONGEST_NAME


@dataclass(frozen=True)
class PostCall:
    """A message to store, as bytes: the server stores and gives out exactly these."""

    to: str
    about: str
    message: bytes
    run_hash: bytes
    protocol: int = PROTOCOL

    @classmethod
    def of(cls, request: Post, run_hash: bytes) -> PostCall:
        """The call that makes a request."""
        return cls(request.to, request.about, encode_alignment(request.message), run_hash)


@dataclass(frozen=True)
class FetchCall:
    """A question for a stored message."""

    kind: str
    sender: str
    about: str
    run_hash: bytes
    protocol: int = PROTOCOL
    piece: int = 0

    @classmethod
    def of(cls, request: Fetch, run_hash: bytes) -> FetchCall:
        """The call that makes a request."""
        return cls(kind_of(request.kind), request.sender, request.about, run_hash, piece=request.piece)


@dataclass(frozen=True)
class FetchAnswer:
    """The message, or whom it waits for."""

    message: bytes = b""
    """Empty while it is not there."""
    waits_for: tuple[WaitedFor, ...] = ()


def encode_post(call: PostCall) -> bytes:
    """A post call as bytes."""
    return pb.PostRequest(**vars(call)).SerializeToString()


def encode_fetch(call: FetchCall) -> bytes:
    """A fetch call as bytes."""
    return pb.FetchRequest(**vars(call)).SerializeToString()


def encode_answer(answer: FetchAnswer) -> bytes:
    """An answer as bytes."""
    names, silent, refusals = as_lists(answer.waits_for)
    reply = pb.FetchReply(message=answer.message, waits_for=names, silent_seconds=silent, refusals=refusals)
    return reply.SerializeToString()


def decode_post(raw: bytes) -> PostCall:
    """A post call, or `MessageRefused`."""
    call = parsed(pb.PostRequest(), raw)
    _check_call(call, call.to, call.about)
    return PostCall(call.to, call.about, call.message, call.run_hash, call.protocol)


def decode_fetch(raw: bytes) -> FetchCall:
    """A fetch call, or `MessageRefused`."""
    call = parsed(pb.FetchRequest(), raw)
    _check_call(call, call.kind, call.sender, call.about)
    return FetchCall(call.kind, call.sender, call.about, call.run_hash, call.protocol, call.piece)


def decode_answer(raw: bytes) -> FetchAnswer:
    """An answer, or `MessageRefused`."""
    answer = parsed(pb.FetchReply(), raw)
    names, seconds = tuple(answer.waits_for), tuple(answer.silent_seconds)
    if not len(names) == len(seconds) == len(answer.refusals):
        raise invalid(f"an answer with {len(names)} names and {len(seconds)} times")
    check_names(names)
    return FetchAnswer(answer.message, waited_for(names, seconds, answer.refusals))


def _check_call(call: Any, *names: str) -> None:
    """Nothing in a call but its message is long."""
    longest = max(len(name) for name in names)
    if longest > LONGEST_NAME or len(call.run_hash) != HASH_BYTES:
        check_protocol(call)
    if longest > LONGEST_NAME:
        raise MessageRefused(
            f"received an alignment call with a name of {longest} characters; it may have {LONGEST_NAME}",
            Refusal.TOO_LARGE,
        )
    if len(call.run_hash) != HASH_BYTES:
        raise invalid(f"a run_hash of {len(call.run_hash)} bytes instead of {HASH_BYTES}")


def parsed(message: Any, raw: bytes, what: str = "an alignment call") -> Any:
    """A short call, filled from bytes; `what` names it where it is refused."""
    try:
        message.ParseFromString(raw)
    except DecodeError:
        raise invalid(f"{len(raw)} bytes that are no message of this protocol") from None
    if message.ByteSize() != len(raw) or len(UnknownFieldSet(message)):
        check_protocol(message)
        raise invalid(f"{what} with unknown fields or trailing bytes")
    return message
