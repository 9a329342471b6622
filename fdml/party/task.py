"""What a party trains for and how: everything a worker needs but its learner and its guard."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fdml.models.learning_rate import LearningRate
from fdml.models.objective import Objective
from fdml.models.ranking.pairs import GroupTotals
from fdml.models.signals import BlockUpdate
from fdml.party.few_exchanges import Denoiser
from fdml.protocol.absences import NOBODY, Absences
from fdml.protocol.frozen import NEVER_FROZEN, FrozenEpochs
from fdml.protocol.messages import Gradient, Total
from fdml.protocol.schedule import Schedule, Visit


@dataclass(frozen=True)
class TrainingTask:
    """What a party trains for and how. Row i is the same person at every party."""

    party: str
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    """One per row, mean 1."""
    schedule: Schedule
    objective: Objective
    rate: LearningRate
    echo: float
    lookahead: int
    staleness: int
    watch_loss: bool = False
    """Whether to sum up the loss of the totals as they come."""
    gradient_party: str | None = None
    """The label party where labels are private: it alone has `labels`, and returns gradients."""
    denoise: Denoiser | None = None
    """Only where exchanges are few."""
    others: tuple[str, ...] = ()
    """The names of the other parties."""
    absences: Absences = NOBODY
    """Which steps are trained without a party."""
    frozen: FrozenEpochs = NEVER_FROZEN
    """In which epochs only parties learn that are new to the version that the run goes on from."""
    others_limit: int | None = None
    """The largest code that the others' predictions may come to together; None is any."""
    groups: NDArray[np.int64] | None = None
    """The number of each row's group at the label party, where rows are ranked within groups."""
    stop_after: int | None = None
    """How many epochs without gain end the run; then the models of the last epochs are kept."""

    @cached_property
    def _all_learn(self) -> bool:
        """Whether every party learns in every step, as in nearly all runs."""
        return self.absences.schedule is None and not self.frozen.epochs

    def group_totals(self) -> GroupTotals | None:
        """What the label party compares rows of a group by, before any total; None where they are not compared."""
        return None if self.groups is None else GroupTotals(self.groups, self.labels)

    @cached_property
    def learns_from_gradients(self) -> bool:
        """Whether this party learns from another's gradients."""
        return self.gradient_party not in (None, self.party)

    def learns_at(self, step: int) -> bool:
        """Whether this party learns in a step: not where it is left out or frozen."""
        if self._all_learn:
            return True
        return self.absences.at(step) != self.party and self.frozen.learns(self.party, self.schedule.visit(step).epoch)

    def echo_of(self, answer: Total | Gradient) -> float:
        """How much the others move as this party moves in the step of an answer."""
        if self._all_learn:
            return self.echo
        return self.absences.echo(self.frozen.echo(self.echo, self.schedule.visit(answer.step).epoch), answer)

    def block_update(self, visit: Visit, number: int, first_update: int) -> BlockUpdate:
        """Pass number `number` over a block; `first_update` counts the batches before its first pass."""
        batch_bounds = self.schedule.batch_bounds(visit)
        batches = len(batch_bounds) - 1
        rates = self.rate.of(first_update + number * batches, batches)
        return BlockUpdate(visit.start, self.schedule.order(visit, number), batch_bounds, rates)
