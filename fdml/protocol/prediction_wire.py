"""Questions and answers about predictions as bytes, and back. Nothing from outside is believed unchecked."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from fdml.protocol import wire_pb2 as pb
from fdml.protocol.alignment_messages import TOKEN_BYTES
from fdml.protocol.envelopes import check_names, check_protocol, invalid
from fdml.protocol.fixed_point import FIXED_POINTS, Codes
from fdml.protocol.prediction_messages import (
    DIGEST_BYTES,
    LONGEST_ABSENT,
    MOST_READING,
    MOST_ROWS,
    NUMBER_BYTES,
    VERSION_LETTERS,
    Answered,
    Asked,
    Question,
    Relayed,
    Reply,
)
from fdml.protocol.quoting import quoted, shown
from fdml.settings.names import is_name


def encode_relayed(message: Relayed) -> bytes:
    """A question or a reply as bytes."""
    match message:
        case Question():
            return pb.Relayed(question=pb.Question(**vars(message))).SerializeToString()
        case Reply():
            return pb.Relayed(reply=pb.Reply(**vars(message))).SerializeToString()


def decode_relayed(raw: bytes) -> Relayed:
    """A question or a reply, or `MessageRefused`."""
    envelope = _parsed(pb.Relayed(), raw)
    kind = envelope.WhichOneof("content")
    if kind is None:
        raise invalid("an empty message about predictions")
    found = getattr(envelope, kind)
    if len(UnknownFieldSet(found)):
        raise invalid("a message about predictions with unknown fields")
    check_protocol(found)
    check_names([found.party])
    if not is_name(found.run):
        raise invalid(f"the name {quoted(found.run)}, which no run can have")
    if len(found.number) != NUMBER_BYTES:
        raise invalid(f"a question's number of {len(found.number)} bytes instead of {NUMBER_BYTES}")
    if kind == "question":
        return Question(found.number, found.run, found.party, found.sealed, found.protocol)
    absent = shown(found.absent, LONGEST_ABSENT)
    if bool(absent) == bool(found.sealed):
        raise invalid("a reply that has both an answer and a reason for none, or neither")
    return Reply(found.number, found.run, found.party, found.sealed, absent, found.protocol)


def encode_asked(asked: Asked) -> bytes:
    """What is sealed in a question."""
    return pb.Asked(
        version=asked.version, tokens=asked.tokens.tobytes(), parties=asked.parties, digests=asked.digests
    ).SerializeToString()


def decode_asked(raw: bytes) -> Asked:
    """What was sealed in a question, or `MessageRefused`."""
    found = _parsed(pb.Asked(), raw)
    check_names(found.parties)
    if len(set(found.parties)) != len(found.parties) or len(found.digests) != len(found.parties):
        raise invalid(f"a question to {len(found.parties)} parties with {len(found.digests)} digests")
    if any(len(digest) != DIGEST_BYTES for digest in found.digests):
        raise invalid("a digest of tokens of another length")
    rows, rest = divmod(len(found.tokens), TOKEN_BYTES)
    if rest or rows > MOST_ROWS:
        raise invalid(f"{len(found.tokens)} bytes of tokens; each has {TOKEN_BYTES}, and {MOST_ROWS} is the most")
    tokens = np.frombuffer(found.tokens, np.uint8).reshape(rows, TOKEN_BYTES)
    return Asked(_version(found.version), tokens, tuple(found.parties), tuple(found.digests))


def encode_answered(answered: Answered) -> bytes:
    """What is sealed in a reply."""
    codes, width = b"", 0
    if answered.codes is not None:
        codes, width = np.ascontiguousarray(answered.codes, "<i8").tobytes(), answered.codes.shape[1]
    return pb.Answered(
        version=answered.version,
        known=answered.known,
        codes=codes,
        width=width,
        bits=answered.bits,
        refusal=answered.refusal,
        reading=answered.reading,
    ).SerializeToString()


def decode_answered(raw: bytes, rows: int) -> Answered:
    """What was sealed in the reply to a question for so many rows, or `MessageRefused`."""
    found = _parsed(pb.Answered(), raw)
    version, refusal = _version(found.version), shown(found.refusal, LONGEST_ABSENT)
    if refusal:
        return Answered(version, refusal=refusal)
    if len(found.reading) > MOST_READING:
        raise invalid(f"{len(found.reading)} bytes of how to read a score")
    if len(found.known) != (rows + 7) // 8:
        raise invalid(f"{len(found.known)} bytes that say which of {rows} rows are known")
    return Answered(version, found.known, _codes(found, rows), found.bits, "", found.reading)


def _codes(found: Any, rows: int) -> Codes:
    if found.bits not in FIXED_POINTS:
        raise invalid(f"predictions of {found.bits} bits; they have {', '.join(map(str, FIXED_POINTS))}")
    if not found.width or len(found.codes) != 8 * found.width * rows:
        raise invalid(f"{len(found.codes)} bytes of {found.width} predictions of {rows} rows")
    return np.frombuffer(found.codes, "<i8").astype(np.int64).reshape(rows, found.width)


def _version(text: str) -> str:
    if len(text) != VERSION_LETTERS or not set(text) <= set("0123456789abcdef"):
        raise invalid(f"the version {quoted(text)}")
    return text


def _parsed(message: Any, raw: bytes) -> Any:
    try:
        message.ParseFromString(raw)
    except DecodeError:
        raise invalid(f"{len(raw)} bytes that are no message about predictions") from None
    if message.ByteSize() != len(raw) or len(UnknownFieldSet(message)):
        raise invalid("a message about predictions with unknown fields or trailing bytes")
    return message
