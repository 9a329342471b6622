"""The label party's labels on their way to the other parties: sealed, so that the server cannot read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.align.group_key import GroupKey
from fdml.data.row_set import RowSet
from fdml.data.rows import Rows
from fdml.errors import AlignmentError, LabelError
from fdml.protocol.alignment_messages import Piece
from fdml.protocol.messages import WEIGHT_TYPE, Labels, label_type
from fdml.protocol.row_pieces import fit
from fdml.settings.choices import Task

_PURPOSE = "labels"
_COLUMNS = ("train", "held_out", "train_weights", "held_out_weights")


@dataclass(frozen=True, eq=False)
class LabelSet:
    """Labels as numbers, and the rows' weights, of training and held-out rows in the run's order."""

    classes: int
    """How many there are; 0 for regression."""
    train: NDArray[np.float64]
    held_out: NDArray[np.float64]
    train_weights: NDArray[np.float64]
    held_out_weights: NDArray[np.float64]
    train_groups: NDArray[np.int64] | None = None
    """The number of each row's group, at the label party alone: they never travel."""
    held_out_groups: NDArray[np.int64] | None = None

    def train_rows(self, parts: Mapping[str, Rows]) -> RowSet:
        """The training rows with these features."""
        return RowSet(parts, self.train, self.train_weights, self.train_groups)

    @property
    def held_out_rows(self) -> RowSet:
        """The held-out rows without features."""
        return RowSet({}, self.held_out, self.held_out_weights, self.held_out_groups)


def seal_labels(key: GroupKey, labels: LabelSet, task: Task, piece: Piece | None = None) -> Labels:
    """As they travel. The same labels are sealed to the same bytes, so they may be sent again after a crash.

    The rows of a `piece` are sealed under its number: no piece can take the place of another.
    """
    part = labels if piece is None else _part(labels, piece.train, piece.test)
    _check("this party has", task, part)
    numbers = np.concatenate([part.train, part.held_out]).astype(label_type(task, part.classes))
    weights = np.concatenate([part.train_weights, part.held_out_weights]).astype(WEIGHT_TYPE)
    sent = b"" if (weights == 1.0).all() else weights.tobytes()
    return Labels(part.classes, key.seal(_purpose(piece), numbers.tobytes() + sent), piece)


def open_pieces(key: GroupKey, pieces: Sequence[Labels], whole: Piece, task: Task, label_party: str) -> LabelSet:
    """What a party takes from the label party, put together; or an error that names it."""
    if not fit(pieces, whole) or len({each.classes for each in pieces}) != 1:
        raise AlignmentError(
            f"label party {label_party!r} sent labels in pieces that do not fit together; see that all sides run the "
            f"same version of fdml, then give the run a new name at every side"
        )
    found = []
    for each in pieces:
        piece = each.piece or whole
        train, test = piece.train, piece.test
        found.append(open_labels(key, each, train.stop - train.start, test.stop - test.start, task, label_party))
    if len(found) == 1:
        return found[0]
    joined = {name: np.concatenate([getattr(each, name) for each in found]) for name in _COLUMNS}
    return LabelSet(found[0].classes, **joined)


def open_labels(key: GroupKey, labels: Labels, rows: int, held_out: int, task: Task, label_party: str) -> LabelSet:
    """The labels of so many rows that a message holds, or an error that names the label party."""
    plain, every = key.open(_purpose(labels.piece), labels.sealed), rows + held_out
    kind = label_type(task, labels.classes)
    end = kind.itemsize * every
    if len(plain) not in (end, end + WEIGHT_TYPE.itemsize * every):
        raise AlignmentError(
            f"label party {label_party!r} sent {len(plain)} bytes of labels; {rows} rows and {held_out} held out have "
            f"{end} or, with weights, {end + WEIGHT_TYPE.itemsize * every}; give the run a new name at every side"
        )
    numbers = _values(plain[:end], kind)
    weights = _values(plain[end:], WEIGHT_TYPE) if len(plain) > end else np.ones(every)
    given = LabelSet(labels.classes, numbers[:rows], numbers[rows:], weights[:rows], weights[rows:])
    _check(f"label party {label_party!r} sent", task, given)
    return given


def _part(labels: LabelSet, train: slice, held_out: slice) -> LabelSet:
    return LabelSet(
        labels.classes,
        labels.train[train],
        labels.held_out[held_out],
        labels.train_weights[train],
        labels.held_out_weights[held_out],
    )


def _purpose(piece: Piece | None) -> str:
    return _PURPOSE if piece is None else f"{_PURPOSE} {piece.number}"


def _values(raw: bytes, kind: np.dtype[Any]) -> NDArray[np.float64]:
    return np.frombuffer(raw, kind).astype(np.float64)  # a copy: kernels compile anew for read-only arrays


def _check(what: str, task: Task, labels: LabelSet) -> None:
    """Refuse labels that the kernels could not take; `what` begins the sentence."""
    for values in (labels.train, labels.held_out, labels.train_weights, labels.held_out_weights):
        if not np.isfinite(values).all():
            raise LabelError(f"{what} labels or weights that are not finite numbers; correct its label column")
    for weights in (labels.train_weights, labels.held_out_weights):
        if weights.min(initial=0.0) < 0.0:
            raise LabelError(f"{what} a weight below 0 in row {int(weights.argmin())}; weights are 0 or more")
    if task == "regression":
        return
    for values in (labels.train, labels.held_out):
        wrong = (values < 0) | (values >= labels.classes) | (values != np.floor(values))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise LabelError(f"{what} a label in row {row} that is none of the {labels.classes} classes, from 0 on")
