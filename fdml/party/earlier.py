"""An earlier version of the model, as one party of a run holds it: to begin with, and to be compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fdml.data.label_encoding import LabelEncoding
from fdml.errors import LabelError
from fdml.models.calibration import IDENTITY, Calibration
from fdml.models.joint import JointFunction
from fdml.models.losses import Floats
from fdml.party.alignment import SharedRows

EARLIER = 0
"""The number under which its held-out predictions travel, as those of an epoch before the first."""


@dataclass(frozen=True, eq=False)
class EarlierModel:
    """The bundle of an earlier run, which predicts the held-out rows by its own encoder."""

    version: str
    run: str
    """The name of the run that made it."""
    predict: Callable[[SharedRows, int], Floats]
    """Its local predictions of a run's held-out rows, so many floats each."""
    labels: LabelEncoding | None = None
    """At the label party: what its scores mean."""
    calibration: Calibration = IDENTITY
    joint: JointFunction | None = None
    """What becomes of the sum of its predictions; None: what becomes of the run's own."""

    @property
    def text(self) -> str:
        """For a person."""
        return f"version {self.version[:8]} (run {self.run})"

    def check_labels(self, now: LabelEncoding | None) -> None:
        """Raise unless its scores are of the same classes as those of now, or of targets by the same link."""
        if self.labels is None or now is None:
            return
        ours, theirs = self.labels.classes, now.classes
        same = ours is None and theirs is None
        if ours is not None and theirs is not None:
            same = len(ours) == len(theirs) and bool(np.all(ours == theirs))
        if not same:
            raise LabelError(
                f"the labels have {now.class_count} classes, and {self.text} was trained on {self.labels.class_count}, "
                f"not the same ones; leave evaluation.against and `from` out"
            )
        if self.labels.link != now.link:
            raise LabelError(
                f"the loss has scores by the {now.link} link, and {self.text} by the {self.labels.link} link; leave "
                f"evaluation.against and `from` out, or take its loss"
            )

    def score(self, score: Floats, now: LabelEncoding | None) -> Floats:
        """A joint score of its models as this run has scores: calibrated, and in the units of this run's labels."""
        found = self.calibration.apply(score)
        if self.labels is None or now is None or now.classes is not None:
            return found
        return self.labels.rescaled(found, now)


def without_part(version: str) -> EarlierModel:
    """An earlier version at a party that is new to it: its part is zero."""
    return EarlierModel(version, "", lambda shared, floats: np.zeros((len(shared.held_out), floats)))
