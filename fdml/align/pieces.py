"""Sets of many rows travel in pieces: what the server has stored is not made or sent again after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from fdml.align.conversation import Conversation, fetch, post
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import (
    SERVER,
    BlindedIds,
    Keys,
    Piece,
    RowCounts,
    RowPointers,
    SharedRowIndex,
    StoredPieces,
    Tokens,
)
from fdml.storage.disk import Disk
from fdml.storage.scratch_arrays import scratch_array

_AHEAD = 16
"""Pieces that are made before the server has confirmed the first of them: so many are in memory at most."""
Make = Callable[[Piece], tuple[Keys, Keys | None]]
"""The keys of a piece: of its training rows, and of its test rows; None without test files."""


def post_set(
    kind: type[Tokens] | type[BlindedIds], whole: Piece, make: Make, to: str = SERVER, about: str = ""
) -> Conversation[None]:
    """Post a set of keys, in pieces if it has more rows than one; `whole` is any of them."""
    if whole.count == 1:
        yield from post(kind(*make(whole)), to, about)
        return
    stored = (yield from fetch(StoredPieces, to, about)).count
    for number in range(stored, whole.count):
        piece = whole.at(number)
        yield from post(kind(*make(piece), piece=piece), to, about)
        if number % _AHEAD == _AHEAD - 1:
            yield from fetch(StoredPieces, to, about)  # is answered after all before it are stored


def post_pointers(pieces: Iterable[RowPointers], whole: Piece, to: str) -> Conversation[None]:
    """Post row pointers to a party, in pieces if there are more than one has; `pieces` makes them one by one."""
    stored = 0 if whole.count == 1 else (yield from fetch(StoredPieces, to)).count
    for number, message in enumerate(pieces):
        if number >= stored:
            yield from post(message, to)
        if number % _AHEAD == _AHEAD - 1:
            yield from fetch(StoredPieces, to)


def fetch_pointers(sender: str) -> Conversation[list[RowPointers]]:
    """All pieces of the pointers to this party's rows."""
    first = yield from fetch(RowPointers, sender)
    found, whole = [first], first.piece
    for number in range(1, 1 if whole is None else whole.count):
        came = yield from fetch(RowPointers, sender, "", number)
        _check_piece(came.piece, None if whole is None else whole.at(number), sender)
        if (came.train, came.held_out, came.digest) != (first.train, first.held_out, first.digest):
            raise _no_fit(f"party {sender!r}")
        found.append(came)
    return found


def pass_pieces(sender: str, owner: str, to: str, change: Callable[[Keys], Keys]) -> Conversation[None]:
    """Pass an owner's set on, changed, as a sender's pieces come."""
    came = yield from fetch(BlindedIds, sender, owner)
    if came.piece is None:
        yield from post(_changed(came, change), to, owner)
        return
    whole = came.piece
    stored = (yield from fetch(StoredPieces, to, owner)).count
    for number in range(stored, whole.count):
        if number:
            came = yield from fetch(BlindedIds, sender, owner, number)
            _check_piece(came.piece, whole.at(number), sender)
        yield from post(_changed(came, change), to, owner)


def fetch_index(about: str, most: RowCounts, disk: Disk | None = None) -> Conversation[SharedRowIndex]:
    """What the server has found, many rows mapped from the disk; refused if that is more than there can be."""
    first = yield from fetch(SharedRowIndex, SERVER, about)
    whole = first.piece
    if whole is None:
        return first
    if whole.rows.train > most.train or (whole.rows.test or 0) > (most.test or 0):
        raise _no_fit("the server")
    train, held_out = (scratch_array(disk, (rows,), np.int64) for rows in (whole.rows.train, whole.rows.test or 0))
    for number in range(whole.count):
        piece, came = whole.at(number), first
        if number:
            came = yield from fetch(SharedRowIndex, SERVER, about, number)
            _check_piece(came.piece, piece, SERVER)
        if (came.digest, came.counts) != (first.digest, first.counts):
            raise _no_fit("the server")
        train[piece.train], held_out[piece.test] = came.train, came.held_out
    return replace(first, train=train, held_out=held_out, piece=None)


def _changed(came: BlindedIds, change: Callable[[Keys], Keys]) -> BlindedIds:
    return replace(came, train=change(came.train), test=None if came.test is None else change(came.test))


def _check_piece(came: Piece | None, expected: Piece | None, sender: str) -> None:
    if came != expected:
        raise _no_fit(f"party {sender!r}" if sender else "the server")


def _no_fit(sender: str) -> AlignmentError:
    return AlignmentError(
        f"{sender} sent pieces of a set that do not fit together; see that all sides run the same version of fdml, "
        f"then give the run a new name at every side"
    )
