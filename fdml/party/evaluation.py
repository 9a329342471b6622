"""Evaluation on held-out rows: when it is due, and at the label party what the totals say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fdml.align.sealed_labels import LabelSet
from fdml.align.sealed_metrics import seal_metrics
from fdml.data.label_encoding import LabelEncoding
from fdml.errors import MessageRefused, Refusal, SettingsError
from fdml.events import Compared, ComparedVersion, Evaluated, Reliability
from fdml.models.calibration import IDENTITY, Calibration
from fdml.models.head.head import Head
from fdml.models.losses import Floats
from fdml.models.metrics import mean_loss
from fdml.models.objective import Objective, objective_for
from fdml.models.reliability import reliability_of
from fdml.models.task_metrics import task_metrics
from fdml.monitor.convergence import Convergence, convergence_of
from fdml.party.alignment import SharedRows
from fdml.party.checkpoint import Progress
from fdml.party.comparing import compared_version
from fdml.party.earlier import EarlierModel
from fdml.party.early_stopping import BestSoFar, best_so_far
from fdml.party.member import Member
from fdml.privacy.guard import Guard
from fdml.protocol.fixed_point import Codes, decode, grid_of
from fdml.protocol.messages import HeldOutTotal, Metrics, SealedMetrics
from fdml.protocol.row_pieces import fit, held_out_pieces
from fdml.settings import evaluation_schedule


class Evaluation:
    """One party's evaluations: how many it took part in, and at the label party which still wait for their total."""

    def __init__(
        self,
        member: Member,
        shared: SharedRows,
        labels: LabelSet,
        progress: Progress,
        encoding: LabelEncoding | None = None,
        objective: Objective | None = None,
    ) -> None:
        self._key = shared.key
        self._grid = grid_of(member.training(shared).value_bits)
        self._stays_home = member.has_private_labels
        self._run = member.run
        self._party = member.name
        self._encoding = encoding
        self.rows = labels.held_out_rows
        """The held-out rows' labels and weights."""
        self._loss = self._run.chosen_loss
        self._objective = objective or objective_for(self._loss, labels.classes, self._run.training)
        self._unit = 1.0 if encoding is None else encoding.spread
        """What a target of 1 means in the labels' own units."""
        self.pieces = held_out_pieces(len(labels.held_out), self._objective.width, member.piece_rows)
        """The first of the pieces in which predictions of the held-out rows travel."""
        self.is_on = len(labels.held_out) > 0
        """Whether there are held-out rows at all."""
        self.each_epoch = self.is_on and evaluation_schedule(self._run) == "epoch"
        self.at_end = self.is_on and not self.each_epoch
        self.count = progress.evaluations
        """How often the held-out rows were predicted for others."""
        self.pending: dict[int, tuple[float, float]] = dict(progress.pending)
        """By epoch: training seconds and mean training loss."""
        self._heads: dict[int, Floats] = dict(progress.heads)
        """By epoch that is pending: what the head's parameters were, where the run has one."""
        self.history: dict[int, Evaluated] = {each.epoch: each for each in progress.history}
        """By epoch, what was found so far, also by earlier starts."""
        self.calibration: Calibration = IDENTITY
        """How the joint score is to be read at the end."""
        self.losses: list[float] = list(progress.losses)
        """The mean training loss of every epoch, at the label party."""
        self._kept: int | None = None
        self._best = self._find_best()
        self._kept_score = progress.score
        if self._run.evaluation.stop_after is not None and not self.is_on:
            raise SettingsError(
                "evaluation.stop_after needs held-out rows to decide by, and there are none; raise evaluation.holdout, "
                "bring a test file at every party, or leave stop_after out"
            )

    @property
    def width(self) -> int:
        """Floats of a local prediction."""
        return self._objective.width

    @property
    def best_so_far(self) -> BestSoFar:
        """Which epoch to keep by now, where held-out rows decide."""
        return self._best

    def _find_best(self) -> BestSoFar:
        losses = {epoch: each.test_loss for epoch, each in self.history.items()}
        return best_so_far(losses, self._run.evaluation.stop_after or len(losses) + 1)

    @property
    def convergence(self) -> Convergence | None:
        """Whether training has converged; None where that is not known, or held-out rows ended it."""
        found = convergence_of(self.losses) if self.is_on else None
        has_ended = self._run.evaluation.stop_after is not None and self._best.final_at is not None
        return None if found is not None and found.trend == "falling" and has_ended else found

    def keep(self, epoch: int) -> None:
        """The model of this epoch is the one that stays."""
        self._kept = epoch

    @property
    def result(self) -> Evaluated | None:
        """What was found of the model that stays; None at all but the label party."""
        return self.history.get(self._epoch)

    @property
    def score_of_result(self) -> Floats | None:
        """The scores of the held-out rows that `result` was found of; None where they are not known."""
        return None if self._kept_score is None or self._kept_score[0] != self._epoch else self._kept_score[1]

    @property
    def _epoch(self) -> int:
        """The epoch whose model stays, as things are; 0 where none was evaluated."""
        if self._kept is not None:
            return self._kept
        decides = self._run.evaluation.stop_after is not None
        return self._best.epoch if decides else max(self.history, default=0)

    @property
    def progress(self) -> Progress:
        """What a checkpoint keeps of it; the seconds of training are the session's to add."""
        history, losses = tuple(self.history.values()), tuple(self.losses)
        return Progress(0.0, dict(self.pending), self.count, history, losses, self._kept_score, dict(self._heads))

    def wait_for(self, epoch: int, seconds: float, train_loss: float) -> None:
        """The held-out rows of an epoch are predicted, and their total is on its way."""
        self.pending[epoch] = (seconds, train_loss)
        if isinstance(self._objective.joint, Head):
            self._heads[epoch] = self._objective.joint.state()["theta"]

    def _objective_at(self, epoch: int) -> Objective:
        """What training lowered at the end of an epoch: a head has moved on since."""
        joint, theta = self._objective.joint, self._heads.pop(epoch, None)
        return (
            self._objective
            if theta is None or not isinstance(joint, Head)
            else replace(self._objective, joint=joint.at(theta))
        )

    def compare(self, compared: Compared) -> None:
        """Keep what the model that stays brings over the label party's features alone."""
        found = self.history[compared.epoch]
        self.history[compared.epoch] = replace(found, compared=compared)

    def score(self, totals: Sequence[HeldOutTotal], guard: Guard) -> tuple[Evaluated, SealedMetrics]:
        """The figures of one epoch, from the sum of all parties' held-out predictions, and what others are told.

        They are told of the score as it was released: a calibration is made of predictions that never were.
        """
        predictions = decode(self._opened(totals, guard)).reshape(-1, self._objective.width)
        epoch = totals[0].epoch
        seconds, train_loss = self.pending.pop(epoch)
        score = self._objective_at(epoch).score(predictions)
        told = self._scored(epoch, seconds, train_loss, score)
        own = told
        if self.calibration is not IDENTITY:
            score = self.calibration.apply(score)
            own = self._scored(epoch, seconds, train_loss, score)
        self.history[epoch] = own
        self._best = self._find_best()
        if epoch == self._epoch:
            self._kept_score = (epoch, score)
        if self._stays_home:
            return own, SealedMetrics(epoch)
        return own, seal_metrics(self._key, Metrics(epoch, seconds, train_loss, told.test_loss, told.test_metric))

    def compared_with(
        self, earlier: EarlierModel, totals: Sequence[HeldOutTotal], guard: Guard
    ) -> ComparedVersion | None:
        """What the model that stays brings over an earlier version, by its total; None where it has no figures."""
        found, ours = self.result, self.score_of_result
        if found is None or ours is None:
            return None
        objective = replace(self._objective, joint=earlier.joint or self._objective.joint)
        score = objective.score(decode(self._opened(totals, guard)).reshape(-1, objective.width))
        score = earlier.score(score, self._encoding)
        compared = compared_version(self._run, found, earlier, (ours, score), self)
        self.history[found.epoch] = replace(found, earlier=compared)
        return compared

    def loss_of(self, score: Floats) -> float:
        """The mean loss of the held-out rows."""
        return mean_loss(self._loss, score, self.rows)

    def _scored(self, epoch: int, seconds: float, train_loss: float, score: Floats) -> Evaluated:
        figures = self.figures(score)
        known, metric = figures.get("log_loss"), next(iter(figures.values()))
        test_loss = self.loss_of(score) if known is None else known  # where it is the loss, it is not computed twice
        return Evaluated(self._party, epoch, seconds, train_loss, test_loss, metric, figures)

    def figures(self, score: Floats) -> dict[str, float | None]:
        """All that is said of a score of the held-out rows besides its loss, the task's own metric first."""
        threshold = self._run.evaluation.threshold
        return task_metrics(self._run.task, self._loss, score, self.rows, threshold=threshold, unit=self._unit)

    @property
    def reliability(self) -> Reliability | None:
        """How well the probabilities of the model that stays came true; None where there are none."""
        score = self.score_of_result
        if score is None or self._run.task != "binary":
            return None
        return reliability_of(self._party, self._epoch, self._loss, score, self.rows)

    def _opened(self, totals: Sequence[HeldOutTotal], guard: Guard) -> Codes:
        """The sum without masks, if the parties can have made it: other values would tell of labels by the loss."""
        codes, parties, grid = self._unmasked(totals, guard), len(self._run.parties), self._grid
        most = parties * grid.largest_code(parties)
        outside = int(np.count_nonzero((codes > most) | (codes < -most)))
        if outside:
            raise MessageRefused(
                f"the sum of held-out predictions of epoch {totals[0].epoch} has {outside} values that {parties} "
                f"parties cannot have made: each sends at most {grid.largest(parties):g}; the server or a party has "
                f"changed them, ask who runs them",
                Refusal.INVALID,
            )
        return codes

    def _unmasked(self, totals: Sequence[HeldOutTotal], guard: Guard) -> Codes:
        """The pieces put together, without masks: those of a party that was started in between have two ids."""
        first, values = totals[0], [each.values.reshape(-1) for each in totals]
        if not fit(totals, self.pieces) or len({each.values.dtype for each in totals}) != 1:
            raise MessageRefused(
                f"the sum of held-out predictions of epoch {first.epoch} came in pieces that do not fit together; all "
                f"sides need the same version of fdml",
                Refusal.INVALID,
            )
        together = np.concatenate(values)
        codes = guard.open_held_out(HeldOutTotal(first.epoch, together, first.mask_ids, first.variance))
        ends = np.cumsum([len(each) for each in values])
        for masks in {each.mask_ids for each in totals[1:]} - {first.mask_ids}:
            under = guard.open_held_out(HeldOutTotal(first.epoch, together, masks, first.variance))
            for each, part, end in zip(totals, values, ends, strict=True):
                if each.mask_ids == masks:
                    codes[end - len(part) : end] = under[end - len(part) : end]
        return codes


def noise_remark(variance: float) -> str:
    """What noise on held-out predictions means for the metrics."""
    return (
        f"the held-out predictions carry noise of {math.sqrt(variance):.3g} in all: their metrics are those of the "
        f'noisy sums, worse than the model; guard.evaluation = "exact" would release them as they are'
    )
