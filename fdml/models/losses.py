"""Losses of a score: value, gradient and prediction, in plain numpy.

The kernels carry their own gradients for speed and answer to these in the
tests. Scores are `(rows, scores)`. Labels are one float per row: 0 or 1 for
binary tasks, the number of the class for softmax, the target for squared.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, logit, softmax

from fdml.errors import SettingsError
from fdml.settings_choices import LossName

Floats = NDArray[np.floating]
_LEAST = 2.0**-33
"""Half a step of the grid on which gradients travel: the least chance that differs from none."""


class Loss(Protocol):
    """How wrong a score is."""

    code: ClassVar[int | None]
    """Its number in the kernels; None where they are given its gradients instead, which is slower."""
    curvature: ClassVar[float]
    """The largest second derivative, which bounds a stable step size."""
    has_odds: ClassVar[bool]
    """Whether scores are log-odds."""

    def scores(self, classes: int) -> int:
        """How many scores a row has, by the number of classes; 0 for a regression."""
        ...

    def value(self, score: Floats, labels: Floats) -> Floats:
        """The loss of each row."""
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


class Logistic:
    """Log loss of a binary label; the score is the log-odds."""

    code: ClassVar[int | None] = 0
    curvature: ClassVar[float] = 0.25
    has_odds: ClassVar[bool] = True

    def scores(self, classes: int) -> int:  # noqa: ARG002 (softmax needs the classes)
        """One."""
        return 1

    def value(self, score: Floats, labels: Floats) -> Floats:
        """The log loss of each row, in the precision of the score; log1p would take six times as long as log."""
        flat = score[:, 0]
        return np.log(1.0 + np.exp(-np.abs(flat))) + np.maximum(flat, 0.0) - labels.astype(flat.dtype) * flat

    def gradient(self, score: Floats, labels: Floats) -> Floats:
        """Probability minus label."""
        return expit(score) - labels[:, None]

    def curvatures(self, score: Floats, labels: Floats) -> Floats:  # noqa: ARG002 (others need the labels)
        """The variance of the label."""
        chance = expit(score)
        return chance * (1.0 - chance)

    def invert_gradient(self, gradient: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """The label by the sign, the score by the size."""
        labels = (gradient[:, 0] < 0).astype(np.float64)
        return logit(np.clip(gradient + labels[:, None], _LEAST, 1.0 - _LEAST)), labels

    def probability(self, score: Floats) -> NDArray[np.float64]:
        """Probabilities of both classes, `(rows, 2)`."""
        positive = expit(score[:, 0].astype(np.float64))
        return np.column_stack([1.0 - positive, positive])


class Hinge:
    """The SVM's loss of a binary label; the sign of the score decides."""

    code: ClassVar[int | None] = 1
    curvature: ClassVar[float] = 1.0
    has_odds: ClassVar[bool] = False

    def scores(self, classes: int) -> int:  # noqa: ARG002 (softmax needs the classes)
        """One."""
        return 1

    def value(self, score: Floats, labels: Floats) -> Floats:
        """How far each row is from the right side of the margin."""
        return np.maximum(0.0, 1.0 - (2.0 * labels - 1.0) * score[:, 0])

    def gradient(self, score: Floats, labels: Floats) -> Floats:
        """Minus the sign of the label inside the margin, else 0."""
        sign = (2.0 * labels - 1.0)[:, None]
        return np.where(sign * score < 1.0, -sign, 0.0)

    def curvatures(self, score: Floats, labels: Floats) -> Floats:  # noqa: ARG002 (others need the labels)
        """One, as for the squared loss: there is none but at the kink."""
        return np.ones_like(score)

    def invert_gradient(self, gradient: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Only the side of the margin can be found, not the distance from it."""
        raise SettingsError(f"the gradient of hinge ({gradient.shape[0]} rows) does not show scores; use logistic")


class Squared:
    """Half the squared error."""

    code: ClassVar[int | None] = 2
    curvature: ClassVar[float] = 1.0
    has_odds: ClassVar[bool] = False

    def scores(self, classes: int) -> int:  # noqa: ARG002 (softmax needs the classes)
        """One."""
        return 1

    def value(self, score: Floats, labels: Floats) -> Floats:
        """Half the squared error of each row."""
        return 0.5 * np.square(score[:, 0].astype(np.float64) - labels)

    def gradient(self, score: Floats, labels: Floats) -> Floats:
        """Score minus target."""
        return score - labels[:, None]

    def curvatures(self, score: Floats, labels: Floats) -> Floats:  # noqa: ARG002 (others need the labels)
        """One."""
        return np.ones_like(score)

    def invert_gradient(self, gradient: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """The residual as a score beside the target 0: it has the same gradient."""
        return gradient, np.zeros(len(gradient))


class Softmax:
    """Log loss over K classes, one score each."""

    code: ClassVar[int | None] = 3
    curvature: ClassVar[float] = 0.5
    has_odds: ClassVar[bool] = True

    def scores(self, classes: int) -> int:
        """One for each class."""
        return classes

    def value(self, score: Floats, labels: Floats) -> Floats:
        """The log loss of each row."""
        logs = log_softmax(score.astype(np.float64), axis=1)
        return -logs[np.arange(len(score)), labels.astype(np.int64)]

    def gradient(self, score: Floats, labels: Floats) -> Floats:
        """Probability of each class, minus 1 at the true one."""
        result = softmax(score, axis=1)
        result[np.arange(len(score)), labels.astype(np.int64)] -= 1.0
        return result

    def curvatures(self, score: Floats, labels: Floats) -> Floats:  # noqa: ARG002 (others need the labels)
        """Each score's own part, without those that two scores have together."""
        chances = softmax(score, axis=1)
        return chances * (1.0 - chances)

    def invert_gradient(self, gradient: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """The class by the one negative entry, scores up to a constant by the sizes."""
        labels = gradient.argmin(axis=1)
        chances = gradient.copy()
        chances[np.arange(len(labels)), labels] += 1.0
        return np.log(np.clip(chances, _LEAST, 1.0)), labels.astype(np.float64)

    def probability(self, score: Floats) -> NDArray[np.float64]:
        """Probabilities of all classes, `(rows, K)`."""
        return softmax(score.astype(np.float64), axis=1)


LOSSES: dict[LossName, Loss] = {
    "logistic": Logistic(),
    "hinge": Hinge(),
    "squared": Squared(),
    "softmax": Softmax(),
}
