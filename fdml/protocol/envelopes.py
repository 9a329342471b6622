"""What all kinds of envelopes are read and refused by, and which piece of a larger set one holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.alignment_messages import Piece, RowCounts, piece_count
from fdml.protocol.messages import PROTOCOL
from fdml.protocol.quoting import quoted
from fdml.settings.names import is_name

_MOST_ROWS = 2**53
MOST_PIECES = 2**16
"""Of one set: of the usual size they have 17 billion rows."""


def parsed(envelope: Any, raw: bytes) -> tuple[str, Any]:
    """Which of its contents an envelope holds, and that; nothing more may be in the bytes."""
    try:
        envelope.ParseFromString(raw)
    except DecodeError:
        raise invalid(f"{len(raw)} bytes that are no message of this protocol") from None
    kind = envelope.WhichOneof("content")
    if kind is None:
        raise invalid("a message without content")
    content = getattr(envelope, kind)
    envelope.DiscardUnknownFields()
    if envelope.ByteSize() != len(raw):
        check_protocol(content)
        raise invalid(f"a {kind} message with unknown fields or trailing bytes")
    return kind, content


def invalid(what: str) -> MessageRefused:
    """A refusal of something that was received."""
    return MessageRefused(f"received {what}; both sides must run the same version of fdml", Refusal.INVALID)


def check_protocol(content: Any) -> None:
    """Of a message that cannot be read and names its protocol: refuse it for that, if it is another than ours."""
    theirs = getattr(content, "protocol", PROTOCOL)
    if theirs != PROTOCOL:
        raise MessageRefused(
            f"received a message of protocol {theirs}, and this side speaks {PROTOCOL}; install the same fdml at both",
            Refusal.MISMATCH,
        )


def check_names(names: Sequence[str]) -> None:
    """Refuse names that no party can have."""
    for name in names:
        if not is_name(name):
            raise invalid(f"the name {quoted(name)}, which no party can have")


def piece_out(piece: Piece | None) -> pb.Piece | None:
    """As it travels; nothing where a message holds a whole set."""
    if piece is None:
        return None
    return pb.Piece(number=piece.number, size=piece.size, train=piece.rows.train, test=piece.rows.test)


def piece_in(content: Any) -> Piece | None:
    """Which piece of a set a message says it holds; refused unless there can be such a one."""
    if not content.HasField("piece"):
        return None
    given = content.piece
    if len(UnknownFieldSet(given)):
        raise invalid(f"a piece with unknown fields of a {content.DESCRIPTOR.name}")
    rows = RowCounts(given.train, given.test if given.HasField("test") else None)
    if not given.size or max(rows.train, rows.test or 0) > _MOST_ROWS or piece_count(rows, given.size) > MOST_PIECES:
        raise invalid(f"pieces of {given.size} rows of {rows.train}; a set has at most {MOST_PIECES} pieces")
    piece = Piece(given.number, given.size, rows)
    if piece.number >= piece.count:
        raise invalid(f"piece {piece.number} of {piece.count}")
    return piece
