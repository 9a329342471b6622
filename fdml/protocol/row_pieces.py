"""In which pieces labels and held-out predictions travel: it follows from the numbers of rows, so all sides know it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from fdml.protocol.alignment_messages import Piece, RowCounts
from fdml.protocol.messages import HeldOutPredictions, HeldOutTotal, Labels

LABEL_ROWS = 2**20
"""Rows of a piece of labels: 1 to 16 MiB."""
HELD_OUT_VALUES = 2**20
"""Values of a piece of held-out predictions, at most 8 MiB; of wider predictions than that, one row."""
M = TypeVar("M", Labels, HeldOutPredictions, HeldOutTotal)


def label_pieces(rows: int, held_out: int, most: int | None = None) -> Piece:
    """The first piece of the labels of training and held-out rows; `most` rows each, or the usual number."""
    return Piece(0, most or LABEL_ROWS, RowCounts(rows, held_out))


def held_out_pieces(held_out: int, width: int, most: int | None = None) -> Piece:
    """The first piece of the predictions of held-out rows, of so many values each."""
    return Piece(0, most or max(1, HELD_OUT_VALUES // width), RowCounts(0, held_out))


def all_pieces(whole: Piece) -> list[Piece | None]:
    """The pieces of a set by number; None stands for a set that is one message, as nearly all are."""
    return [None] if whole.count == 1 else [whole.at(number) for number in range(whole.count)]


def number_of(message: Labels | HeldOutPredictions | HeldOutTotal) -> int:
    """Of the piece that a message holds; 0 where it holds all."""
    return 0 if message.piece is None else message.piece.number


def cut(message: HeldOutPredictions, whole: Piece) -> list[HeldOutPredictions]:
    """A release of all held-out rows in the pieces in which it leaves: the same values under the same mask."""
    values = message.release.values.reshape(-1)
    width = len(values) // max(whole.rows.test or 0, 1)
    return [
        message
        if piece is None
        else HeldOutPredictions(
            message.epoch,
            replace(message.release, values=values[piece.test.start * width : piece.test.stop * width]),
            piece,
        )
        for piece in all_pieces(whole)
    ]


def complete(found: dict[int, M], message: M) -> tuple[M, ...] | None:
    """Add a piece to those that have come; all of them in order once none is missing."""
    found[number_of(message)] = message
    count = 1 if message.piece is None else message.piece.count
    return tuple(found[number] for number in range(count)) if set(range(count)) <= found.keys() else None


def labels_digest(pieces: Iterable[Labels]) -> bytes:
    """Of what is sealed in some pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(len(piece.sealed).to_bytes(8, "little") + piece.sealed)
    return digest.digest()


def fit(messages: Sequence[Labels] | Sequence[HeldOutTotal], whole: Piece) -> bool:
    """Whether these messages are the pieces of this set."""
    return [each.piece for each in messages] == all_pieces(whole)
