"""Alignment messages as bytes, and back: equal messages are equal bytes. What comes from outside is checked here.

What can be seen from a message alone is checked here; what depends on the run, the server checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf.unknown_fields import UnknownFieldSet
from numpy.typing import NDArray

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.agreed_training import SLOWEST_LINE
from fdml.protocol.alignment_messages import (
    GENERATION_BYTES,
    HASH_BYTES,
    KINDS,
    LONGEST_REASON,
    POINT_BYTES,
    START_BYTES,
    TOKEN_BYTES,
    AlignmentMessage,
    BlindedIds,
    Consent,
    KeyCheck,
    KeyGrant,
    KeyOffer,
    Keys,
    N,
    Piece,
    RemovedRows,
    RowCounts,
    RowPointers,
    RowsOffer,
    RowsPlan,
    RowSummary,
    SharedRowIndex,
    StoredPieces,
    Tokens,
)
from fdml.protocol.envelopes import invalid, parsed, piece_in, piece_out

_KEY_BYTES = 32
_LARGEST_TEXT = 16 * 1024
"""Bytes of a certificate, a signature or a sealed key; the usual ones have under 1,000."""
_MOST_ROWS = 2**53
MOST_GENERATIONS = 1024
"""Of one alignment; the next one makes it anew."""
_NAMES: dict[type, str] = {kind: name for name, kind in KINDS.items()}


def kind_of(kind: type[N]) -> str:
    """The name under which a kind of message travels."""
    return _NAMES[kind]


def encode_alignment(message: AlignmentMessage) -> bytes:
    """A message as bytes."""
    match message:
        case RowsOffer():
            envelope = pb.AlignmentMessage(rows_offer=pb.RowsOffer(**vars(message)))
        case RowsPlan():
            envelope = pb.AlignmentMessage(rows_plan=pb.RowsPlan(**vars(message)))
        case RemovedRows(train, test):
            envelope = pb.AlignmentMessage(removed_rows=pb.RemovedRows(train=_out(train), test=_out(test)))
        case KeyOffer():
            envelope = pb.AlignmentMessage(key_offer=pb.KeyOffer(**vars(message)))
        case KeyGrant(sealed):
            envelope = pb.AlignmentMessage(key_grant=pb.KeyGrant(sealed=sealed))
        case KeyCheck(digest):
            envelope = pb.AlignmentMessage(key_check=pb.KeyCheck(digest=digest))
        case Tokens(train, test, by_position, piece):
            known = None if by_position is None else pb.ByPosition(**vars(by_position))
            tokens = pb.Tokens(train=_out(train), test=_maybe_out(test), by_position=known, piece=piece_out(piece))
            envelope = pb.AlignmentMessage(tokens=tokens)
        case BlindedIds(train, test, piece):
            points = pb.BlindedIds(train=_out(train), test=_maybe_out(test), piece=piece_out(piece))
            envelope = pb.AlignmentMessage(blinded_ids=points)
        case StoredPieces(count):
            envelope = pb.AlignmentMessage(stored_pieces=pb.StoredPieces(count=count))
        case RowSummary():
            envelope = pb.AlignmentMessage(row_summary=pb.RowSummary(**vars(message)))
        case Consent():
            envelope = pb.AlignmentMessage(consent=pb.Consent(**vars(message)))
        case SharedRowIndex(train, held_out, digest, counts, left, left_test, piece):
            rows = {"train": train, "held_out": held_out, "left": left, "left_test": left_test}
            numbers = {name: _out(places) for name, places in rows.items()}
            index = pb.SharedRowIndex(digest=digest, counts=counts, piece=piece_out(piece), **numbers)
            envelope = pb.AlignmentMessage(shared_rows=index)
        case RowPointers():
            pointers = pb.RowPointers(**{**vars(message), "piece": piece_out(message.piece)})
            envelope = pb.AlignmentMessage(row_pointers=pointers)
    return envelope.SerializeToString()


def decode_alignment(raw: bytes) -> AlignmentMessage:
    """What was posted, or `MessageRefused`."""
    kind, content = parsed(pb.AlignmentMessage(), raw)
    if "by_position" in content.DESCRIPTOR.fields_by_name and len(UnknownFieldSet(content.by_position)):
        raise invalid(f"a {kind} message with unknown fields")
    return _DECODE[kind](content)


def _out(values: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()


def _maybe_out(values: NDArray[Any] | None) -> bytes | None:
    return None if values is None else _out(values)


def _rows_piece_in(content: Any, train: NDArray[Any], test: NDArray[Any] | None) -> Piece | None:
    """Of which piece of a set these are the rows; refused unless they are as many as it has."""
    piece = piece_in(content)
    if piece is None:
        return None
    sizes = [each.stop - each.start for each in (piece.train, piece.test)]
    if sizes != [len(train), 0 if test is None else len(test)]:
        raise invalid(f"piece {piece.number} of {piece.count} with {len(train)} rows instead of {sizes[0]}")
    if (test is None) != (piece.rows.test is None):
        raise invalid(f"piece {piece.number} of a set that has test rows at one time and none at another")
    return piece


def _keys(raw: bytes, size: int, what: str) -> Keys:
    if len(raw) % size:
        raise invalid(f"{what} of {len(raw)} bytes, which is no whole number of {size}")
    return np.frombuffer(raw, np.uint8).reshape(-1, size)


def _positions(raw: bytes) -> NDArray[np.int64]:
    if len(raw) % 8:
        raise invalid(f"row numbers of {len(raw)} bytes, which is no whole number of int64")
    found = np.frombuffer(raw, "<i8").astype(np.int64, copy=False)
    if found.size and found.min() < 0:
        raise invalid(f"the place {found.min()}")
    return found


def _exactly(raw: bytes, size: int, what: str) -> bytes:
    if len(raw) != size:
        raise invalid(f"a {what} of {len(raw)} bytes instead of {size}")
    return raw


def _at_most(raw: bytes, what: str) -> bytes:
    if len(raw) > _LARGEST_TEXT:
        raise MessageRefused(f"received a {what} of {len(raw)} bytes; it may have {_LARGEST_TEXT}", Refusal.TOO_LARGE)
    return raw


def _rows_offer_in(content: pb.RowsOffer) -> RowsOffer:
    if len(content.chain) > MOST_GENERATIONS or content.number > _MOST_ROWS:
        raise invalid(f"an offer of {len(content.chain)} generations; there are at most {MOST_GENERATIONS}")
    chain = tuple(_exactly(each, GENERATION_BYTES, "generation") for each in content.chain)
    tag, start = _exactly(content.tag, GENERATION_BYTES, "tag"), _exactly(content.start, START_BYTES, "start")
    return RowsOffer(tag, chain, content.number, content.whole, start)


def _plan_in(content: pb.RowsPlan) -> RowsPlan:
    base = content.base and _exactly(content.base, GENERATION_BYTES, "generation")
    if not 1 <= content.number <= _MOST_ROWS:
        raise invalid(f"a generation number {content.number}")
    starts = tuple(_exactly(each, START_BYTES, "start") for each in content.starts)
    return RowsPlan(_exactly(content.generation, GENERATION_BYTES, "generation"), base, content.number, starts)


def _removed_in(content: pb.RemovedRows) -> RemovedRows:
    found = RemovedRows(_positions(content.train), _positions(content.test))
    for places in (found.train, found.test):
        if (places[1:] <= places[:-1]).any():
            raise invalid("removed rows that are not in ascending order")
    return found


def _offer_in(content: pb.KeyOffer) -> KeyOffer:
    if bool(content.certificate) != bool(content.signature):
        raise invalid("a key offer with only one of certificate and signature")
    return KeyOffer(
        _exactly(content.public, _KEY_BYTES, "public key"),
        _at_most(content.certificate, "certificate"),
        _at_most(content.signature, "signature"),
        content.brings_key,
    )


def _grant_in(content: pb.KeyGrant) -> KeyGrant:
    if not content.sealed:
        raise invalid("a key grant without a key")
    return KeyGrant(_at_most(content.sealed, "sealed key"))


def _tokens_in(content: pb.Tokens) -> Tokens:
    train = _keys(content.train, TOKEN_BYTES, "tokens")
    test = _keys(content.test, TOKEN_BYTES, "tokens") if content.HasField("test") else None
    if not content.HasField("by_position"):
        return Tokens(train, test, piece=_rows_piece_in(content, train, test))
    if len(train) or test is not None or content.HasField("piece"):
        raise invalid("tokens of a party that is matched by position")
    rows = content.by_position
    counts = RowCounts(rows.train, rows.test if rows.HasField("test") else None)
    if max(counts.train, counts.test or 0) > _MOST_ROWS:
        raise invalid(f"{counts.train} rows and {counts.test} test rows")
    return Tokens(train, None, counts)


def _blinded_in(content: pb.BlindedIds) -> BlindedIds:
    train = _keys(content.train, POINT_BYTES, "points")
    test = _keys(content.test, POINT_BYTES, "points") if content.HasField("test") else None
    for points in (train, test):
        if points is not None and (points[:, -1] & 0x80).any():
            raise invalid("a point that is not written in the shortest way")
    return BlindedIds(train, test, _rows_piece_in(content, train, test))


def _summary_in(content: pb.RowSummary) -> RowSummary:
    summary = RowSummary(
        tuple(content.rows),
        tuple(content.test_rows),
        content.shared,
        content.shared_test,
        tuple(content.matched),
        content.number,
        tuple(content.new_rows),
        content.new_shared,
        content.left,
        tuple(content.brought),
    )
    counts = (*summary.rows, *summary.test_rows, *summary.matched, summary.shared, summary.shared_test)
    counts += (*summary.new_rows, *summary.brought, summary.number, summary.new_shared, summary.left)
    if max(counts) > _MOST_ROWS:
        raise invalid(f"a summary of more than {_MOST_ROWS} rows")
    return summary


def _consent_in(content: pb.Consent) -> Consent:
    reason = content.reason
    if content.given and reason:
        raise invalid("a consent with a reason against it")
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise invalid(f"a reason of {len(reason)} characters; it has at most {LONGEST_REASON}, all printable")
    if content.line > SLOWEST_LINE:
        raise invalid(f"a line of class {content.line}; the slowest is {SLOWEST_LINE}")
    return Consent(content.given, reason, content.line)


def _shared_rows_in(content: pb.SharedRowIndex) -> SharedRowIndex:
    digest = _exactly(content.digest, HASH_BYTES, "digest")
    found = _positions(content.train), _positions(content.held_out)
    left = _positions(content.left), _positions(content.left_test)
    return SharedRowIndex(*found, digest, tuple(content.counts), *left, _rows_piece_in(content, *found))


def _pointers_in(content: pb.RowPointers) -> RowPointers:
    if max(content.train, content.held_out) > _MOST_ROWS:
        raise invalid(f"pointers of {content.train} rows and {content.held_out} held out")
    digest = _exactly(content.digest, HASH_BYTES, "digest")
    piece, rows = piece_in(content), RowCounts(content.train, content.held_out)
    if piece is not None and piece.rows != rows:
        raise invalid(f"a piece of {piece.rows} pointers, of which there are {rows}")
    return RowPointers(content.train, content.held_out, digest, content.sealed, piece)


_DECODE: dict[str, Callable[[Any], AlignmentMessage]] = {
    "rows_offer": _rows_offer_in,
    "rows_plan": _plan_in,
    "removed_rows": _removed_in,
    "key_offer": _offer_in,
    "key_grant": _grant_in,
    "key_check": lambda content: KeyCheck(_exactly(content.digest, HASH_BYTES, "digest")),
    "tokens": _tokens_in,
    "blinded_ids": _blinded_in,
    "row_summary": _summary_in,
    "consent": _consent_in,
    "shared_rows": _shared_rows_in,
    "row_pointers": _pointers_in,
    "stored_pieces": lambda content: StoredPieces(content.count),
}
