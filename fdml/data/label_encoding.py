"""Label encoding: labels of the file to the numbers that a loss takes, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from fdml.data.documents import checked, read_document, write_document
from fdml.errors import LabelError
from fdml.settings.choices import LARGEST_LOG, Link, Task

Labels = NDArray[np.generic]
ClassType = Literal[
    "text", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
]  # fmt: skip
"""The types that classes can be saved in."""
LAYOUT = 1
"""Of the JSON text."""
_MOST_CLASSES = 1000


@dataclass(frozen=True)
class LabelEncoding:
    """The mapping of a task's labels to numbers, learned from training rows.

    Targets of regression are scaled to mean 0 and variance 1, so that one step size fits all: losses are in units of
    the targets' variance. Under a log link they are divided by their mean instead, so that a score of 0 is the mean.
    """

    task: Task
    classes: NDArray[np.generic] | None = None
    """Sorted; None for regression."""
    centre: float = 0.0
    """The mean of training's targets; 0 under a log link."""
    spread: float = 1.0
    """Their standard deviation; 1 where all are the same. Under a log link their mean."""
    link: Link = "identity"
    """Of a regression: how a score becomes a prediction."""

    @property
    def class_count(self) -> int:
        """How many classes there are; 0 for regression."""
        return 0 if self.classes is None else len(self.classes)

    def transform(self, labels: Labels, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """Class numbers, or scaled targets; `rows` are the numbers of these rows in their file, for errors."""
        if self.classes is None:
            return (_targets(labels, self.link, rows) - self.centre) / self.spread
        known = np.isin(labels, self.classes)
        if not known.all():
            row = int(np.argmin(known))
            raise LabelError(
                f"the label in test row {row} does not occur in training, which has {len(self.classes)} classes; "
                f"correct it, leave the row out, or add training rows of its class"
            )
        return np.searchsorted(self.classes, labels).astype(np.float64)

    def inverse_transform(self, score: NDArray[np.floating]) -> NDArray[np.float64]:
        """Regression only: predictions in the labels' own units."""
        found = score[:, 0].astype(np.float64)
        if self.link == "log":
            found = np.exp(np.minimum(found, LARGEST_LOG))
        return found * self.spread + self.centre

    def rescaled(self, score: NDArray[np.floating], other: LabelEncoding) -> NDArray[np.floating]:
        """Regression only: a score by this encoding as a score by another one with the same link."""
        if self.link == "log":
            moved: NDArray[np.floating] = score + np.log(self.spread / other.spread)
            return moved
        return (score * self.spread + self.centre - other.centre) / other.spread

    def to_json(self) -> str:
        """All of it as JSON; `from_json` gives the same encoding, its classes of the same type."""
        classes = None
        if self.classes is not None:
            classes = {"type": _class_type(self.classes), "values": self.classes.tolist()}
        facts = {"layout": LAYOUT, "task": self.task, "classes": classes, "centre": self.centre, "spread": self.spread}
        return write_document(facts if self.link == "identity" else {**facts, "link": self.link})

    @classmethod
    def from_json(cls, text: str | bytes) -> LabelEncoding:
        """What `to_json` wrote."""
        what = "the label encoding"
        found = checked(_Stored, read_document(text, what, LAYOUT), what)
        if (found.classes is None) != (found.task == "regression"):
            has = "has no" if found.classes is None else "has"
            raise LabelError(f"{what} of task {found.task!r} {has} classes; the file is damaged")
        if found.classes is None:
            return cls(found.task, None, found.centre, found.spread, found.link)
        return cls(found.task, _stored_classes(found.classes), found.centre, found.spread)


@dataclass(frozen=True)
class _StoredClasses:
    """The classes and their numpy type; "text" is text of any length."""

    type: ClassType
    values: Annotated[tuple[str | bool | int | float, ...], Field(min_length=2)]


@dataclass(frozen=True)
class _Stored:
    """The JSON text's keys."""

    task: Task
    classes: _StoredClasses | None
    centre: float
    spread: PositiveFloat
    link: Link = "identity"


def _stored_classes(stored: _StoredClasses) -> Labels:
    try:
        classes = np.array(stored.values, np.str_ if stored.type == "text" else stored.type)
    except (ValueError, OverflowError):
        classes = np.zeros(0)
    if classes.tolist() != list(stored.values) or (classes[1:] <= classes[:-1]).any():
        raise LabelError(f"the {len(stored.values)} classes are not {stored.type} in sorted order; the file is damaged")
    return classes


def _class_type(classes: Labels) -> str:
    name = "text" if classes.dtype.kind == "U" else classes.dtype.name
    if name not in get_args(ClassType):
        raise LabelError(f"labels of type {name} cannot be saved; make them numbers, text or true and false")
    return name


def fit_labels(
    task: Task,
    labels: Labels,
    weights: NDArray[np.float64] | None = None,
    link: Link = "identity",
    rows: NDArray[np.int64] | None = None,
) -> LabelEncoding:
    """The encoding of these training labels; raises if they do not fit the task, or the link of its loss.

    `rows` are the numbers of these rows in their file, for errors; without them rows are counted from 0.
    """
    if labels.dtype.kind == "O":
        raise LabelError("labels are of mixed types; make them all numbers or all text")
    if task == "regression":
        targets = _targets(labels, link, rows)
        if link == "log":
            return LabelEncoding(task, None, 0.0, _mean_above_0(targets, weights), link)
        centre = float(np.average(targets, weights=weights))
        spread = float(np.sqrt(np.average(np.square(targets - centre), weights=weights)))
        return LabelEncoding(task, None, centre, spread or 1.0)
    classes = np.unique(labels)
    if len(classes) < 2:
        raise LabelError(f"all {len(labels)} labels are the same: one class only, there is nothing to learn")
    if task == "binary" and len(classes) > 2:
        raise LabelError(
            f'task "binary" takes two classes, these labels have {len(classes)}; '
            f'set task = "multiclass" or "regression"'
        )
    if len(classes) > _MOST_CLASSES:
        raise LabelError(f'{len(classes)} different labels are too many for classes; set task = "regression"')
    return LabelEncoding(task, classes)


def _mean_above_0(targets: NDArray[np.float64], weights: NDArray[np.float64] | None) -> float:
    mean = float(np.average(targets, weights=weights))
    if mean <= 0.0:
        raise LabelError(f"all {len(targets)} labels are 0, whose mean has no logarithm; add rows of other labels")
    return mean


def _targets(labels: Labels, link: Link, rows: NDArray[np.int64] | None) -> NDArray[np.float64]:
    if labels.dtype.kind not in "biuf":
        raise LabelError(
            'task "regression" needs numbers as labels, not text or true and false; set task = "binary" or "multiclass"'
        )
    targets = labels.astype(np.float64)
    if not np.isfinite(targets).all():
        row = _first(~np.isfinite(targets), rows)
        raise LabelError(f"the label in row {row} is no finite number; drop the row or mend the label")
    if link == "log" and len(targets) and targets.min() < 0.0:
        raise LabelError(
            f"the label in row {_first(targets < 0.0, rows)} is below 0, and this loss takes counts or rates from 0 "
            f'on; drop the row, mend the label, or set loss = "squared"'
        )
    return targets


def _first(wrong: NDArray[np.bool_], rows: NDArray[np.int64] | None) -> int:
    """The number of the first row that is wrong; of several the first in the file."""
    places = np.flatnonzero(wrong)
    return int(places[0] if rows is None else rows[places].min())
