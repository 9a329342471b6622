"""Losses of a regression: squared, Poisson and quantile, in plain numpy.

Targets come scaled (`fdml.data.label_encoding`): to mean 0 and variance 1 where the score is the target itself, to mean
1 where it is the target's logarithm.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from fdml.errors import SettingsError
from fdml.models.loss_protocol import Floats
from fdml.settings.choices import LARGEST_LOG, Link


class Squared:
    """Half the squared error."""

    code: ClassVar[int | None] = 2
    curvature: ClassVar[float] = 1.0
    has_odds: ClassVar[bool] = False
    link: ClassVar[Link] = "identity"

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

    def constant(self, labels: Floats, weights: Floats) -> float:
        """The mean."""
        return float(np.average(labels, weights=weights))

    def figures(self, score: Floats, labels: Floats, weights: Floats, unit: float) -> dict[str, float]:
        """Root mean squared and mean absolute error."""
        error = score[:, 0].astype(np.float64) - labels
        return {
            "rmse": unit * float(np.sqrt(np.average(np.square(error), weights=weights))),
            "mae": unit * float(np.average(np.abs(error), weights=weights)),
        }


class Poisson:
    """Half the Poisson deviance of a count or rate y >= 0; the score s is the logarithm of its mean.

    The loss is  exp(s) - y s + y log y - y,  its gradient  exp(s) - y. Beyond `LARGEST_LOG` it goes on in a straight
    line, so that no score overflows: a prediction is at most exp(20), 485 million times the mean of the labels.
    """

    code: ClassVar[int | None] = 4
    curvature: ClassVar[float] = 4.0
    """That of four times the mean: exp has no largest one."""
    has_odds: ClassVar[bool] = False
    link: ClassVar[Link] = "log"

    def scores(self, classes: int) -> int:  # noqa: ARG002 (softmax needs the classes)
        """One."""
        return 1

    def value(self, score: Floats, labels: Floats) -> Floats:
        """Half the deviance of each row."""
        flat = score[:, 0].astype(np.float64)
        rate = _rate(flat) * (1.0 + np.maximum(flat - LARGEST_LOG, 0.0))
        return np.maximum(rate - labels * flat + xlogy(labels, labels) - labels, 0.0)  # rounding may end below 0

    def gradient(self, score: Floats, labels: Floats) -> Floats:
        """Rate minus label."""
        return _rate(score) - labels[:, None]

    def curvatures(self, score: Floats, labels: Floats) -> Floats:  # noqa: ARG002 (others need the labels)
        """The rate."""
        return _rate(score)

    def invert_gradient(self, gradient: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """A gradient is a difference, which has many rates and labels."""
        raise SettingsError(f"the gradient of poisson ({len(gradient)} rows) does not show scores; share the labels")

    def constant(self, labels: Floats, weights: Floats) -> float:
        """The logarithm of the mean."""
        return float(np.log(max(np.average(labels, weights=weights), np.exp(-LARGEST_LOG))))

    def figures(self, score: Floats, labels: Floats, weights: Floats, unit: float) -> dict[str, float]:
        """Mean deviance and mean absolute error of the predicted rates."""
        error = _rate(score[:, 0].astype(np.float64)) - labels
        return {
            "poisson_deviance": 2.0 * unit * float(np.average(self.value(score, labels), weights=weights)),
            "mae": unit * float(np.average(np.abs(error), weights=weights)),
        }


class Quantile:
    """The pinball loss, whose best score is the quantile of a level q: of the targets, q are below it.

    With the error e = score - y it is  (1 - q) e  above the target and  -q e  below.
    """

    curvature: ClassVar[float] = 1.0
    has_odds: ClassVar[bool] = False
    link: ClassVar[Link] = "identity"

    def __init__(self, thousandths: int) -> None:
        self._thousandths = thousandths
        self.level = thousandths / 1000.0

    @property
    def code(self) -> int:
        """Of the kernels, by the level."""
        return _QUANTILES + self._thousandths

    def scores(self, classes: int) -> int:  # noqa: ARG002 (softmax needs the classes)
        """One."""
        return 1

    def value(self, score: Floats, labels: Floats) -> Floats:
        """The pinball loss of each row."""
        error = score[:, 0].astype(np.float64) - labels
        return np.maximum((1.0 - self.level) * error, -self.level * error)

    def gradient(self, score: Floats, labels: Floats) -> Floats:
        """1 - q above the target, else -q."""
        return np.where(score > labels[:, None], 1.0 - self.level, -self.level).astype(score.dtype)

    def curvatures(self, score: Floats, labels: Floats) -> Floats:  # noqa: ARG002 (others need the labels)
        """One, as for the squared loss: there is none but at the kink."""
        return np.ones_like(score)

    def invert_gradient(self, gradient: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Only the side of the target can be found, not the distance from it."""
        raise SettingsError(f"the gradient of quantile ({len(gradient)} rows) does not show scores; share the labels")

    def constant(self, labels: Floats, weights: Floats) -> float:
        """The quantile of the targets: the least that has a share q of all weights up to it."""
        order = np.argsort(labels)
        shares = np.cumsum(weights[order])
        place = int(np.searchsorted(shares, self.level * shares[-1]))
        return float(labels[order][min(place, len(labels) - 1)])

    def figures(self, score: Floats, labels: Floats, weights: Floats, unit: float) -> dict[str, float]:
        """Mean pinball loss, the share of targets that are not above the prediction, and mean absolute error."""
        error = score[:, 0].astype(np.float64) - labels
        return {
            "pinball_loss": unit * float(np.average(self.value(score, labels), weights=weights)),
            "coverage": float(np.average(error >= 0.0, weights=weights)),
            "mae": unit * float(np.average(np.abs(error), weights=weights)),
        }


_QUANTILES = 5
"""The first code of quantiles, to which their level in thousandths is added."""


def _rate(score: Floats) -> Floats:
    """The mean that a logarithm stands for."""
    return np.exp(np.minimum(score, score.dtype.type(LARGEST_LOG)))
