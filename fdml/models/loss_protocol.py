"""What a loss must have to be trained with; `fdml.models.losses` has the losses by name."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fdml.settings.choices import Link

Floats = NDArray[np.floating]


class Loss(Protocol):
    """How wrong a score is."""

    curvature: ClassVar[float]
    """The largest second derivative, which bounds a stable step size."""
    has_odds: ClassVar[bool]
    """Whether scores are log-odds."""
    link: ClassVar[Link]
    """What a regression's score is of its target: "identity", the target in units of the training targets' standard
    deviation around their mean; "log", the logarithm of the target in units of their mean, and no target is below 0.
    """

    @property
    def code(self) -> int | None:
        """Its number in the kernels; None where they are given its gradients instead, which is slower."""
        ...

    def scores(self, classes: int) -> int:
        """How many scores a row has, by the number of classes; 0 for a regression."""
        ...

    def value(self, score: Floats, labels: Floats) -> Floats:
        """The loss of each row; 0 at best."""
        ...

    def gradient(self, score: Floats, labels: Floats) -> Floats:
        """dLoss/dscore, `(rows, scores)`."""
        ...

    def curvatures(self, score: Floats, labels: Floats) -> Floats:
        """The second derivative by each score, `(rows, scores)`, never below zero; what a Newton step divides by."""
        ...

    def invert_gradient(self, gradient: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Scores and labels that have this gradient: who sees a gradient can compute them."""
        ...


@runtime_checkable
class RegressionLoss(Loss, Protocol):
    """A loss of targets that are numbers; its own metric is D2, the share of the best constant's loss that is gone."""

    def constant(self, labels: Floats, weights: Floats) -> float:
        """The score with the least loss where all rows have the same."""
        ...

    def figures(self, score: Floats, labels: Floats, weights: Floats, unit: float) -> dict[str, float]:
        """What people ask of it besides D2, by name; `unit` is what a target of 1 means in the labels' own units."""
        ...
