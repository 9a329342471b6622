"""What training lowers: a loss after a joint function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fdml.errors import SettingsError
from fdml.models.head.head import Head
from fdml.models.joint import SUM, Interactions, JointFunction
from fdml.models.losses import Floats, Loss, loss_named
from fdml.settings.choices import LossName
from fdml.settings.joint import SUM as SUM_SETTINGS
from fdml.settings.joint import JointSettings


@dataclass(frozen=True)
class Objective:
    """A loss of the scores that a joint function makes of totals `(rows, width)`.

    Labels are one float per row: the number of the class, or the target of a regression.
    """

    loss: Loss
    classes: int
    """How many classes the labels have; 0 for a regression."""
    joint: JointFunction = SUM

    @property
    def scores(self) -> int:
        """How many scores the loss takes of each row."""
        return self.loss.scores(self.classes)

    @property
    def width(self) -> int:
        """How many floats of each row a local prediction has, and so travel."""
        return self.joint.width(self.scores)

    @property
    def curvature(self) -> float:
        """The largest second derivative of the loss, which bounds a stable step size."""
        return self.loss.curvature

    @cached_property
    def kernel_code(self) -> int | None:
        """The number under which compiled kernels know the loss; None if they have to be given gradients."""
        return self.loss.code if self.joint.is_identity or self.joint.factors else None

    def score(self, total: Floats) -> Floats:
        """The scores of each row, `(rows, scores)`."""
        return self.joint.score(total)

    def value(self, total: Floats, labels: Floats) -> Floats:
        """The loss of each row."""
        return self.loss.value(self.joint.score(total), labels)

    def gradient(self, total: Floats, labels: Floats) -> Floats:
        """dLoss/dtotal, `(rows, width)`."""
        return self.joint.gradient(total, self.loss.gradient(self.joint.score(total), labels))

    def output_gradient(self, total: Floats, labels: Floats, outputs: Floats) -> Floats:
        """dLoss/doutputs of a party whose model computes `outputs`, `(rows, width)`: the chain rule to the end."""
        return self.joint.output_gradient(outputs, self.gradient(total, labels))

    def curvatures(self, total: Floats, labels: Floats) -> Floats:
        """The second derivative of the loss by each score, `(rows, scores)`; never below zero."""
        return self.loss.curvatures(self.joint.score(total), labels)

    def invert_gradient(self, gradient: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Totals and labels that have this gradient: who sees a gradient can compute them."""
        if not self.joint.is_identity:
            raise SettingsError('labels = "private" needs a joint function whose score is the total; take the sum')
        return self.loss.invert_gradient(gradient)


def objective_for(loss: LossName, classes: int, training: JointSettings = SUM_SETTINGS, *, seed: int = 0) -> Objective:
    """The objective of a run by its loss, its number of classes (0 for a regression) and its joint function.

    A joint function that learns begins by the seed.
    """
    found = loss_named(loss)
    return Objective(found, classes, joint_for(training, found.scores(classes), seed))


def joint_for(training: JointSettings, scores: int, seed: int = 0) -> JointFunction:
    """The joint function that the settings of a run name, before training, where the loss takes `scores` scores."""
    match training.joint:
        case "sum":
            return SUM
        case "fm":
            return Interactions(training.vector)
        case "head":
            return Head(training.vector, training.head_units, scores, seed)
