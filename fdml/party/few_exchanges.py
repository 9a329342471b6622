"""Where a run exchanges all rows only a few times: what a party makes of an exchange, and of what came since.

The same noise then stays in the totals for many passes and would pull every pass
the same way, so the others' predictions are denoised first. (Noise that is new in
every step averages out.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fdml.models.learner import Learner
from fdml.models.losses import Floats
from fdml.models.objective import Objective
from fdml.models.signals import BlockUpdate, Scores
from fdml.party.denoising import Denoised, Values, probit_scale
from fdml.party.outbox import PendingPush
from fdml.protocol.fixed_point import Codes, decode

Denoiser = Callable[[Values, float], Denoised]
"""The others' predictions as expected behind values with noise of this variance, by a fit to the party's own rows."""


class LastExchange(NamedTuple):
    """The others' predictions of all rows at the last exchange, the party's own, and the variance of the others'."""

    others: Floats
    own: Floats
    variance: float


class Estimate(NamedTuple):
    """What the scores of the training rows should be by now, and the variance of what is not known of their totals."""

    score: Floats
    variance: float


def train_alone(
    learner: Learner, rows: int, passes: Iterable[BlockUpdate], signal: Callable[[Floats, Floats], Scores]
) -> None:
    """Passes before the first exchange: the party's own prediction is the whole total.

    `signal` makes a signal of a total and the party's own part of it.
    """
    for block in passes:
        own = learner.predict(0, rows)
        learner.update(block, signal(own, own))


class FewExchanges:
    """What a party knows of the others since the last exchange."""

    def __init__(self, denoise: Denoiser, objective: Objective) -> None:
        self._denoise = denoise
        self._objective = objective
        self.last: LastExchange | None = None

    def take(self, total: Codes, pushed: PendingPush, noise: float) -> tuple[Floats, float]:
        """The total of an exchange with the party's own part exact, and the shrinkage applied to it.

        `noise` is the variance of the noise in the others' parts. A log-odds that is uncertain is shrunk to the
        chance that it means; only of a sum is a total one.
        """
        found = self._denoise(decode(total - pushed.codes), max(0.0, noise))
        self.last = LastExchange(found.values, pushed.own, found.variance)
        is_odds = self._objective.loss.has_odds and self._objective.joint.is_identity
        shrinkage = probit_scale(found.variance) if is_odds else 1.0
        return (shrinkage * (found.values + pushed.own)).astype(pushed.own.dtype), shrinkage

    def estimate(self, own: Floats, echo: float) -> Estimate | None:
        """The scores by now, where the party now predicts `own`; None before the first exchange.

        The others are taken to have moved as this party has since the last exchange.
        """
        if self.last is None:
            return None
        moved = echo * (own - self.last.own)
        total = self.last.others + self.last.own + moved
        return Estimate(self._objective.score(total), self.last.variance)
