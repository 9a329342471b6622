"""Weights of training rows by their class: `training.class_weight`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fdml.align.sealed_labels import LabelSet
from fdml.data.label_encoding import LabelEncoding
from fdml.data.row_set import mean_one
from fdml.errors import SettingsError
from fdml.settings import TrainingSettings


def weighted_by_class(labels: LabelSet, training: TrainingSettings, encoding: LabelEncoding | None) -> LabelSet:
    """The labels with weights of training rows that count their class; those of held-out rows stay as they are.

    Weights travel sealed with the labels, so the other parties train with them too. Their mean stays 1.
    """
    chosen = training.class_weight
    if chosen is None:
        return labels
    number, weights = labels.train.astype(np.int64), labels.train_weights
    if chosen == "balanced":
        sums = np.bincount(number, weights, labels.classes)
        factors = np.divide(1.0, sums, out=np.zeros(labels.classes), where=sums > 0.0)
    else:
        factors = _factors(numbered(chosen, encoding), labels.classes)
    return replace(labels, train_weights=mean_one(weights * factors[number], len(number)))


def numbered(class_weight: Mapping[str, float], encoding: LabelEncoding | None) -> dict[str, float]:
    """The same weights by the numbers of the classes; they are numbered already where there is no encoding."""
    if encoding is None or encoding.classes is None:
        return dict(class_weight)
    numbers = {name: number for number, each in enumerate(encoding.classes.tolist()) for name in _names(each)}
    for name in class_weight:
        if name not in numbers:
            raise SettingsError(
                f"training.class_weight names {name!r}, which is none of the {encoding.class_count} classes of the "
                f"labels; write it as it is in the label column"
            )
    return {str(numbers[name]): weight for name, weight in class_weight.items()}


def _names(label: object) -> tuple[str, ...]:
    """How a class may be written; 1.0 also as 1."""
    whole = isinstance(label, float) and label.is_integer()
    return (str(label), str(int(label))) if whole and isinstance(label, float) else (str(label),)


def _factors(class_weight: Mapping[str, float], classes: int) -> NDArray[np.float64]:
    factors = np.ones(classes)
    for name, weight in class_weight.items():
        if not name.isdigit() or int(name) >= classes:
            raise SettingsError(f"training.class_weight names {name!r}; classes are numbered 0 to {classes - 1} here")
        factors[int(name)] = weight
    return factors
