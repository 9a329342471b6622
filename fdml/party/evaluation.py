"""Evaluation on held-out rows: when it is due, and at the label party what the totals say."""

from __future__ import annotations

import math

from fdml.align.sealed_labels import LabelSet
from fdml.data.row_set import RowSet
from fdml.events import Evaluated
from fdml.models.calibration import IDENTITY, Calibration
from fdml.models.metrics import mean_loss, metric
from fdml.models.objective import objective_for
from fdml.party.checkpoint import Progress
from fdml.party.member import Member
from fdml.privacy.guard import Guard
from fdml.protocol.fixed_point import decode
from fdml.protocol.messages import HeldOutTotal, Metrics
from fdml.settings import evaluation_schedule, loss_for


class Evaluation:
    """One party's evaluations: how many it took part in, and at the label party which still wait for their total."""

    def __init__(self, member: Member, labels: LabelSet, progress: Progress) -> None:
        self._run = member.run
        self._party = member.name
        self._rows = RowSet({}, labels.held_out, labels.held_out_weights)
        self._loss = loss_for(self._run.task, self._run.loss)
        self._objective = objective_for(self._loss, labels.classes)
        self.is_on = len(labels.held_out) > 0
        """Whether there are held-out rows at all."""
        self.each_epoch = self.is_on and evaluation_schedule(self._run) == "epoch"
        self.at_end = self.is_on and not self.each_epoch
        self.count = progress.evaluations
        """How often the held-out rows were predicted for others."""
        self.pending: dict[int, tuple[float, float]] = dict(progress.pending)
        """By epoch: training seconds and mean training loss."""
        self.last: Metrics | None = None
        self.history: dict[int, Evaluated] = {each.epoch: each for each in progress.history}
        """By epoch, what was found so far, also by earlier starts."""
        self.calibration: Calibration = IDENTITY
        """How the joint score is to be read at the end."""

    def score(self, total: HeldOutTotal, guard: Guard) -> Metrics:
        """The metrics of one epoch, from the sum of all parties' held-out predictions."""
        seconds, train_loss = self.pending.pop(total.epoch)
        predictions = decode(guard.open_held_out(total)).reshape(-1, self._objective.width)
        score = self.calibration.apply(self._objective.score(predictions))
        loss = mean_loss(self._loss, score, self._rows)
        self.last = Metrics(total.epoch, seconds, train_loss, loss, metric(self._run.task, score, self._rows))
        self.history[total.epoch] = Evaluated(
            self._party, total.epoch, seconds, train_loss, loss, self.last.test_metric
        )
        return self.last


def noise_remark(variance: float) -> str:
    """What noise on held-out predictions means for the metrics."""
    return (
        f"the held-out predictions carry noise of {math.sqrt(variance):.3g} in all: their metrics are those of the "
        f'noisy sums, worse than the model; guard.evaluation = "exact" would release them as they are'
    )
