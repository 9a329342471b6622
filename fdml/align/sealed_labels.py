"""The label party's labels on their way to the other parties: sealed, so that the server cannot read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.align.group_key import GroupKey
from fdml.data.row_set import RowSet
from fdml.data.rows import Rows
from fdml.errors import AlignmentError, LabelError
from fdml.protocol.messages import WEIGHT_TYPE, Labels, label_type
from fdml.settings.choices import Task

_PURPOSE = "labels"


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


def seal_labels(key: GroupKey, labels: LabelSet, task: Task) -> Labels:
    """As they travel. The same labels are sealed to the same bytes, so they may be sent again after a crash."""
    _check("this party has", task, labels)
    numbers = np.concatenate([labels.train, labels.held_out]).astype(label_type(task, labels.classes))
    weights = np.concatenate([labels.train_weights, labels.held_out_weights]).astype(WEIGHT_TYPE)
    sent = b"" if (weights == 1.0).all() else weights.tobytes()
    return Labels(labels.classes, key.seal(_PURPOSE, numbers.tobytes() + sent))


def open_labels(key: GroupKey, labels: Labels, rows: int, held_out: int, task: Task, label_party: str) -> LabelSet:
    """What a party takes from the label party, or an error that names it."""
    plain, every = key.open(_PURPOSE, labels.sealed), rows + held_out
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
