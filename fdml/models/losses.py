"""Losses by name, and those of classes: value, gradient and prediction, in plain numpy.

The kernels carry their own gradients for speed and answer to these in the
tests. Scores are `(rows, scores)`. Labels are one float per row: 0 or 1 for
binary tasks, the number of the class for softmax, the scaled target for a
regression (`fdml.models.regression_losses`).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, logit, softmax

from fdml.errors import SettingsError
from fdml.models.loss_protocol import Floats as Floats
from fdml.models.loss_protocol import Loss as Loss
from fdml.models.loss_protocol import RegressionLoss
from fdml.models.regression_losses import Poisson, Quantile, Squared
from fdml.settings.choices import LOSSES_OF, Link, LossName, Task
from fdml.settings.losses import thousandths_of

_LEAST = 2.0**-33
"""Half a step of the grid on which gradients travel: the least chance that differs from none."""


class Logistic:
    """Log loss of a binary label; the score is the log-odds."""

    code: ClassVar[int | None] = 0
    curvature: ClassVar[float] = 0.25
    has_odds: ClassVar[bool] = True
    link: ClassVar[Link] = "identity"

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
        positive = self.chance(score)
        return np.column_stack([1.0 - positive, positive])

    def chance(self, score: Floats) -> NDArray[np.float64]:
        """The probability of label 1."""
        found: NDArray[np.float64] = expit(score[:, 0].astype(np.float64))
        return found


class Hinge:
    """The SVM's loss of a binary label; the sign of the score decides."""

    code: ClassVar[int | None] = 1
    curvature: ClassVar[float] = 1.0
    has_odds: ClassVar[bool] = False
    link: ClassVar[Link] = "identity"

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


class Pairwise:
    """Log loss of the order of two rows of one group (`fdml.models.ranking`); a score counts within its group alone.

    The label party computes the gradients of whole groups. What learns from them sees rows: each is read as the row of
    a logistic loss that has this gradient. Its curvature is never below the true one, as the gradient is a mean over
    pairs and p (1 - p) is concave.
    """

    code: ClassVar[int | None] = 0
    curvature: ClassVar[float] = 0.25
    has_odds: ClassVar[bool] = False
    link: ClassVar[Link] = "identity"

    def scores(self, classes: int) -> int:  # noqa: ARG002 (softmax needs the classes)
        """One."""
        return 1

    def value(self, score: Floats, labels: Floats) -> Floats:
        """Of rows that are read as logistic ones; the loss of groups is `fdml.models.ranking.pairs.pair_losses`."""
        return _ROWS.value(score, labels)

    def gradient(self, score: Floats, labels: Floats) -> Floats:
        """Of rows that are read as logistic ones."""
        return _ROWS.gradient(score, labels)

    def curvatures(self, score: Floats, labels: Floats) -> Floats:
        """Of rows that are read as logistic ones."""
        return _ROWS.curvatures(score, labels)

    def invert_gradient(self, gradient: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """The logistic row that has this gradient."""
        return _ROWS.invert_gradient(gradient)


_ROWS = Logistic()


class Softmax:
    """Log loss over K classes, one score each."""

    code: ClassVar[int | None] = 3
    curvature: ClassVar[float] = 0.5
    has_odds: ClassVar[bool] = True
    link: ClassVar[Link] = "identity"

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
    "pairwise": Pairwise(),
    "squared": Squared(),
    "softmax": Softmax(),
    "poisson": Poisson(),
    "quantile": Quantile(500),
}
"""By name; a quantile of another level than the median is named by `fdml.settings.losses.loss_for`."""


def loss_named(name: LossName) -> Loss:
    """The loss that `loss_for` has named, or a registered one."""
    if name in LOSSES:
        return LOSSES[name]
    thousandths = thousandths_of(name)
    if thousandths is None:
        raise SettingsError(f"there is no loss {name!r}; there are {', '.join(LOSSES)}")
    return Quantile(thousandths)


def register_loss(name: LossName, loss: Loss, task: Task) -> None:
    """Make a loss known by its name to settings and estimators, for one task; a name is taken once."""
    if LOSSES.get(name, loss) is not loss or thousandths_of(name) is not None:
        raise SettingsError(f"there is a loss {name!r} already; choose another name")
    if (task == "regression") != isinstance(loss, RegressionLoss):
        has = "needs the methods `constant` and `figures`" if task == "regression" else "has no use for `constant`"
        raise SettingsError(f"loss {name!r} is registered for task {task!r} and {has}; see docs/models.md")
    if loss.code is not None:
        raise SettingsError(f"loss {name!r} has the code {loss.code}; kernels know built-in losses alone, take None")
    LOSSES[name] = loss
    if name not in LOSSES_OF[task]:
        LOSSES_OF[task] = (*LOSSES_OF[task], name)
