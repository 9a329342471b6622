"""How a joint score is read: calibration, probability, class or value."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.data.label_encoding import LabelEncoding
from fdml.errors import DataError, LabelError, MessageRefused, Refusal
from fdml.models.calibration import Calibration
from fdml.models.head.head import Head
from fdml.models.losses import Floats, Logistic, Softmax, loss_named
from fdml.models.objective import objective_for
from fdml.protocol.fixed_point import FIXED_POINTS, Codes, decode
from fdml.settings import RunSettings
from fdml.settings.choices import PAIRWISE


@dataclass(frozen=True, eq=False)
class ScoreReading:
    """What the label party knows of a score besides its labels."""

    calibration: Calibration
    labels: LabelEncoding
    head: Floats | None = None
    """The parameters of the run's head, where it has one."""

    def to_json(self) -> bytes:
        """For an asker that is not the label party."""
        facts = {
            "scale": self.calibration.scale,
            "offset": self.calibration.offset.tolist(),
            "labels": self.labels.to_json(),
            "head": None if self.head is None else self.head.tolist(),
        }
        return json.dumps(facts).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> ScoreReading:
        """What the label party said, or `MessageRefused`."""
        try:
            facts = json.loads(raw)
            offset = np.asarray(facts["offset"], np.float64)
            if offset.ndim != 1 or not np.isfinite(offset).all():
                raise ValueError("its offset is no list of numbers")
            head = None if facts.get("head") is None else np.asarray(facts["head"], np.float64)
            if head is not None and (head.ndim != 1 or not np.isfinite(head).all()):
                raise ValueError("its head is no list of numbers")
            scale = float(facts["scale"])
            if not math.isfinite(scale):
                raise ValueError("its scale is no number")
            return cls(Calibration(scale, offset), LabelEncoding.from_json(facts["labels"]), head)
        except (ValueError, TypeError, KeyError, DataError, LabelError) as error:
            raise MessageRefused(
                f"what the label party says of its scores cannot be read: {error}", Refusal.INVALID
            ) from None


def check_reading(run: RunSettings, width: int, bits: int, reading: ScoreReading) -> None:
    """Raise `MessageRefused` where a reading does not fit scores of this run: it is another party's word."""
    try:
        plain = score_of(run, np.zeros((1, width), np.int64), bits, reading).astype(np.float64)
        fits = reading.calibration.apply(plain).shape == plain.shape
        predictions_of(run, plain, reading.labels)
    except (ValueError, IndexError) as error:
        raise MessageRefused(f"how the label party reads scores does not fit: {error}", Refusal.INVALID) from None
    if not fits or reading.labels.task != run.task:
        raise MessageRefused(
            "how the label party reads scores is for another task or number of scores", Refusal.INVALID
        )


def score_of(run: RunSettings, total: Codes, bits: int, reading: ScoreReading) -> Floats:
    """The scores of totals in fixed point, before calibration: the same bits as in training's evaluation."""
    grid = FIXED_POINTS[bits]
    objective = objective_for(run.chosen_loss, reading.labels.class_count, run.training)
    if isinstance(objective.joint, Head):
        if reading.head is None:
            raise MessageRefused("the label party has not said what the run's head is", Refusal.INVALID)
        objective = replace(objective, joint=objective.joint.at(reading.head))
    return objective.score(decode(total.astype(grid.dtype)).reshape(-1, objective.width))


def probabilities_of(run: RunSettings, score: Floats) -> NDArray[np.float64] | None:
    """Of class 1, or of each class; None where the loss gives none."""
    loss = loss_named(run.chosen_loss)
    if isinstance(loss, Logistic):
        return loss.probability(score)[:, 1]
    return loss.probability(score) if isinstance(loss, Softmax) else None


def predictions_of(run: RunSettings, score: Floats, labels: LabelEncoding) -> NDArray[Any]:
    """The most likely class of each row (of a binary task from `evaluation.threshold` on), or the value.

    Where rows are ranked within groups it is the score: the highest comes first.
    """
    if labels.classes is None:
        return labels.inverse_transform(score)
    if run.chosen_loss == PAIRWISE:
        return score[:, 0]
    if score.shape[1] > 1:
        chosen = np.nan_to_num(score).argmax(axis=1)
    else:
        chance = probabilities_of(run, score)
        is_one = score[:, 0] > 0 if chance is None else chance >= run.evaluation.threshold
        chosen = is_one.astype(np.int64)
    found: NDArray[Any] = labels.classes[chosen]
    return found
