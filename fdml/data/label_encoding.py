"""From labels as people write them to the numbers a loss takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdml.errors import LabelError
from fdml.settings import Task

Labels = NDArray[np.generic]
_MOST_CLASSES = 1000


@dataclass(frozen=True)
class LabelEncoding:
    """How a task's labels become numbers; learned from the training rows.

    Targets of regression are centred and scaled to variance 1, so that one step
    size fits all: losses are in units of the targets' variance.
    """

    task: Task
    classes: NDArray[np.generic] | None = None
    """Sorted; None for regression."""
    centre: float = 0.0
    spread: float = 1.0

    @property
    def class_count(self) -> int:
        """How many classes there are; 0 for regression."""
        return 0 if self.classes is None else len(self.classes)

    def transform(self, labels: Labels) -> NDArray[np.float64]:
        """Class numbers, or scaled targets."""
        if self.classes is None:
            return (_targets(labels) - self.centre) / self.spread
        known = np.isin(labels, self.classes)
        if not known.all():
            row = int(np.argmin(known))
            raise LabelError(
                f"label {labels[row].item()!r} in test row {row} does not occur in training; "
                f"the classes are {_listed(self.classes)}"
            )
        return np.searchsorted(self.classes, labels).astype(np.float64)

    def inverse_transform(self, score: NDArray[np.floating]) -> NDArray[np.float64]:
        """Regression only: scores in the labels' own units."""
        return score[:, 0].astype(np.float64) * self.spread + self.centre


def fit_labels(task: Task, labels: Labels, weights: NDArray[np.float64] | None = None) -> LabelEncoding:
    """The code for these training labels; raises if they do not fit the task."""
    if labels.dtype.kind == "O":
        raise LabelError("labels are of mixed types; make them all numbers or all text")
    if task == "regression":
        targets = _targets(labels)
        centre = float(np.average(targets, weights=weights))
        spread = float(np.sqrt(np.average(np.square(targets - centre), weights=weights)))
        return LabelEncoding(task, None, centre, spread or 1.0)
    classes = np.unique(labels)
    if len(classes) < 2:
        raise LabelError(f"all {len(labels)} labels are {_listed(classes)}: one class only, there is nothing to learn")
    if task == "binary" and len(classes) > 2:
        raise LabelError(
            f'task "binary" takes two classes, these labels have {len(classes)}: {_listed(classes)}; '
            f'set task = "multiclass" or "regression"'
        )
    if len(classes) > _MOST_CLASSES:
        raise LabelError(f'{len(classes)} different labels are too many for classes; set task = "regression"')
    return LabelEncoding(task, classes)


def _targets(labels: Labels) -> NDArray[np.float64]:
    if labels.dtype.kind not in "biuf":
        raise LabelError(
            f'task "regression" needs numbers as labels, not {labels[0].item()!r}; set task = "binary" or "multiclass"'
        )
    targets = labels.astype(np.float64)
    if not np.isfinite(targets).all():
        row = int(np.argmin(np.isfinite(targets)))
        raise LabelError(f"label in row {row} is {targets[row]}; drop the row or mend the label")
    return targets


def _listed(classes: Labels) -> str:
    shown = ", ".join(repr(each.item()) for each in classes[:5])
    return shown + (", ..." if len(classes) > 5 else "")
