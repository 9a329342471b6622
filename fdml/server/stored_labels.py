"""The label party's labels as the server has them: as they came, piece by piece, for all other parties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_messages import Piece
from fdml.protocol.limits import AgreedCounts
from fdml.protocol.messages import Labels
from fdml.protocol.row_pieces import all_pieces, label_pieces, labels_digest, number_of
from fdml.settings import RunSettings


def pieces_of_labels(settings: RunSettings, agreed: AgreedCounts, most: int | None) -> Piece:
    """How labels come; where they are private no row's is told, and there is one message."""
    rows = agreed.rows + agreed.held_out
    return label_pieces(agreed.rows, agreed.held_out, rows if settings.privacy.labels == "private" else most)


class StoredLabels:
    """Pieces come in order, and none is ever replaced by another. Nothing in it can be read here."""

    def __init__(self) -> None:
        self.pieces: list[Labels] = []
        """Those that have come."""
        self._count = 1

    @property
    def complete(self) -> bool:
        """Whether all labels have come: then the training can begin."""
        return len(self.pieces) == self._count

    @property
    def first(self) -> Labels | None:
        """Which says how many classes there are; None before anything has come."""
        return self.pieces[0] if self.pieces else None

    @property
    def told(self) -> tuple[int, bytes]:
        """How many pieces of several are stored, and a digest of them: what a label party that starts again asks."""
        return (len(self.pieces), labels_digest(self.pieces)) if self._count > 1 and self.pieces else (0, b"")

    def has(self, labels: Labels) -> bool:
        """Whether something has come where these belong."""
        return number_of(labels) < len(self.pieces)

    def take(self, sender: str, labels: Labels, whole: Piece) -> bool:
        """Keep the next piece; whether it is new. One that came before must be the same."""
        expected, number = all_pieces(whole), number_of(labels)
        if number >= len(expected) or labels.piece != expected[number]:
            raise MessageRefused(
                f"party {sender!r} sent labels in other pieces than the {len(expected)} of this run; all sides need "
                f"the same version of fdml",
                Refusal.INVALID,
            )
        if number > len(self.pieces):
            raise MessageRefused(
                f"party {sender!r} sent piece {number} of its labels; the next is {len(self.pieces)}", Refusal.GAP
            )
        first = self.first
        changed = first is not None and first.classes != labels.classes
        if changed or (self.has(labels) and self.pieces[number] != labels):
            raise MessageRefused(
                f"party {sender!r} sent other labels than before; its label column has changed", Refusal.CONFLICT
            )
        if self.has(labels):
            return False
        self._count = len(expected)
        self.pieces.append(labels)
        return True

    def state(self) -> dict[str, NDArray[Any]]:
        """All that has come, as arrays."""
        if not self.pieces:
            return {}
        arrays: dict[str, NDArray[Any]] = {"labels/classes": np.array(self.pieces[0].classes)}
        for number, each in enumerate(self.pieces):
            arrays[_name(number)] = np.frombuffer(each.sealed, np.uint8)
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]], whole: Piece) -> None:
        """Become the labels that gave this state."""
        expected = all_pieces(whole)
        self._count = len(expected)
        stored = (number for number in range(len(expected)) if _name(number) in arrays)
        classes = int(arrays["labels/classes"]) if "labels/classes" in arrays else 0
        self.pieces = [Labels(classes, arrays[_name(number)].tobytes(), expected[number]) for number in stored]


def _name(number: int) -> str:
    return f"labels/sealed/{number}" if number else "labels/sealed"
