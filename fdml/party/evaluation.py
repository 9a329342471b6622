"""Evaluation on held-out rows: when it is due, and at the label party what the totals say."""

from __future__ import annotations

import math

import numpy as np

from fdml.align.group_key import GroupKey
from fdml.align.sealed_labels import LabelSet
from fdml.align.sealed_metrics import seal_metrics
from fdml.data.row_set import RowSet
from fdml.errors import MessageRefused, Refusal
from fdml.events import Evaluated
from fdml.models.calibration import IDENTITY, Calibration
from fdml.models.losses import Floats
from fdml.models.metrics import mean_loss, metric
from fdml.models.objective import objective_for
from fdml.party.checkpoint import Progress
from fdml.party.member import Member
from fdml.privacy.guard import Guard
from fdml.protocol.fixed_point import FIXED_POINTS, Codes, decode
from fdml.protocol.messages import HeldOutTotal, Metrics, SealedMetrics
from fdml.settings import evaluation_schedule, loss_for


class Evaluation:
    """One party's evaluations: how many it took part in, and at the label party which still wait for their total."""

    def __init__(self, member: Member, key: GroupKey, labels: LabelSet, progress: Progress) -> None:
        self._key = key
        self._stays_home = member.has_private_labels
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

    def score(self, total: HeldOutTotal, guard: Guard) -> tuple[Metrics, SealedMetrics]:
        """The metrics of one epoch, from the sum of all parties' held-out predictions, and what others are told.

        They are told of the score as it was released: a calibration is made of predictions that never were.
        """
        predictions = decode(self._opened(total, guard)).reshape(-1, self._objective.width)
        seconds, train_loss = self.pending.pop(total.epoch)
        score = self._objective.score(predictions)
        told = self._figures(score)
        own = told if self.calibration is IDENTITY else self._figures(self.calibration.apply(score))
        self.last = Metrics(total.epoch, seconds, train_loss, *own)
        self.history[total.epoch] = Evaluated(self._party, total.epoch, seconds, train_loss, *own)
        if self._stays_home:
            return self.last, SealedMetrics(total.epoch)
        return self.last, seal_metrics(self._key, Metrics(total.epoch, seconds, train_loss, *told))

    def _figures(self, score: Floats) -> tuple[float, float]:
        """Loss and metric of the held-out rows."""
        return mean_loss(self._loss, score, self._rows), metric(self._run.task, score, self._rows)

    def _opened(self, total: HeldOutTotal, guard: Guard) -> Codes:
        """The sum without masks, if the parties can have made it: other values would tell of labels by the loss."""
        codes, parties = guard.open_held_out(total), len(self._run.parties)
        grid = FIXED_POINTS[self._run.training.value_bits]
        most = parties * grid.largest_code(parties)
        outside = int(np.count_nonzero((codes > most) | (codes < -most)))
        if outside:
            raise MessageRefused(
                f"the sum of held-out predictions of epoch {total.epoch} has {outside} values that {parties} parties "
                f"cannot have made: each sends at most {grid.largest(parties):g}; the server or a party has changed "
                f"them, ask who runs them",
                Refusal.INVALID,
            )
        return codes


def noise_remark(variance: float) -> str:
    """What noise on held-out predictions means for the metrics."""
    return (
        f"the held-out predictions carry noise of {math.sqrt(variance):.3g} in all: their metrics are those of the "
        f'noisy sums, worse than the model; guard.evaluation = "exact" would release them as they are'
    )
