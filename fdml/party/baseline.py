"""The baseline of every run: what the label party's own features alone would have given, on the same held-out rows.

It is trained after the joint training, from the label party's own rows and labels, and nothing of it leaves. It draws
on nothing that joint training made, so a start after a crash finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fdml.align.sealed_labels import LabelSet
from fdml.data.rows import drop_unit_values, width
from fdml.errors import FdmlError
from fdml.events import Compared, Evaluated
from fdml.models.bootstrap import RESAMPLES, paired_difference
from fdml.models.bundle_card import finite_or_none
from fdml.models.losses import Floats
from fdml.models.metrics import mean_loss
from fdml.models.signals import Gradients, Scores, Signal
from fdml.monitor.convergence import convergence_of
from fdml.monitor.figures import gain_text
from fdml.party.alignment import SharedRows
from fdml.party.class_weights import weighted_by_class
from fdml.party.data import PartyRows
from fdml.party.early_stopping import best_so_far
from fdml.party.effects import Emit, Send, Work, remark
from fdml.party.evaluation import Evaluation
from fdml.party.member import Member
from fdml.party.plan import Plan, learner_in, training_task
from fdml.party.task import TrainingTask
from fdml.protocol.messages import Checkpointed
from fdml.settings import GuardSettings, RunSettings

_LOSS_ROWS = 20_000
"""Training rows by whose loss it is told whether the training alone has converged."""


def compare_alone(
    member: Member,
    shared: SharedRows,
    labels: LabelSet,
    evaluation: Evaluation,
    clock: Callable[[], float],
    still_here: Checkpointed,
) -> Work[None]:
    """At the label party: train on its own features alone, and say what joint training brings over that.

    `still_here` is sent now and then, so that the server does not take a long training for a lost party: it says
    nothing new. A failure leaves the baseline out, and the joint model as it is.
    """
    if not _is_wanted(member, evaluation):
        return
    began = heard = clock()
    try:
        rows = member.data.rows(shared)
        if width(rows.train) == 0 or rows.held_out is None:
            return
        alone = AloneTraining(member, rows, _own_labels(member, shared, labels), shared)
        for _ in alone.epochs():
            if still_here.step >= 0 and clock() - heard > member.run.training.peer_timeout_seconds:
                heard = clock()
                yield Send(still_here)
        alone.close()
        compared = _compared(member, evaluation, alone, lambda: clock() - began)
    except FdmlError as error:
        yield remark(member.name, f"no baseline, as training on {member.name}'s features alone failed: {error}")
        return
    if compared is not None:
        evaluation.compare(compared)
        yield Emit(compared)


def card_evaluation(evaluation: Evaluation, guard: GuardSettings) -> Evaluated | None:
    """What the bundle's card tells of the joint model.

    Where noise in training covers the label party's rows, its model files are covered, too: the baseline was made of
    the same rows without noise, so it stays in the history.
    """
    found = evaluation.result
    return found if found is None or guard.training is None else replace(found, compared=None)


def _is_wanted(member: Member, evaluation: Evaluation) -> bool:
    run = member.run
    has_others = len(run.parties) > 1
    return member.is_label_party and has_others and run.evaluation.baseline == "alone" and evaluation.result is not None


def _own_labels(member: Member, shared: SharedRows, labels: LabelSet) -> LabelSet:
    """The labels as they are: alone, the label party need not randomise what it shows nobody."""
    if not member.has_private_labels:
        return labels
    own, encoding = member.data.labels(shared)
    return weighted_by_class(own, member.run.training, encoding)


def _compared(
    member: Member, evaluation: Evaluation, alone: AloneTraining, seconds: Callable[[], float]
) -> Compared | None:
    joint, found, run = evaluation.score_of_result, evaluation.result, member.run
    if joint is None or found is None:  # an older fdml has written the checkpoint
        return None
    figures = {name: finite_or_none(figure) for name, figure in evaluation.figures(alone.score).items()}
    metric, alone_metric = next(iter(figures.items()))
    difference = paired_difference(
        run.task, joint, alone.score, evaluation.rows, seed=run.training.seed, loss=run.chosen_loss
    )
    trend = convergence_of(alone.losses)
    text = gain_text(f"{member.name} alone", metric, *difference)
    if trend is not None and trend.text:
        text = f"{text} ({member.name} alone: {trend.text})"
    return Compared(
        party=member.name,
        epoch=found.epoch,
        metric=metric,
        joint=finite_or_none(found.test_metric),
        alone=alone_metric,
        gain=difference.value,
        low=difference.low,
        high=difference.high,
        rows=len(evaluation.rows.labels),
        resamples=RESAMPLES,
        seconds=seconds(),
        figures=figures,
        convergence=None if trend is None else trend.trend,
        text=text,
    )


class AloneTraining:
    """A party's model on its own features, trained as if it were the only party, with the run's settings."""

    def __init__(self, member: Member, rows: PartyRows, labels: LabelSet, shared: SharedRows) -> None:
        run, name = member.run, member.name
        own = labels.train_rows({name: drop_unit_values(rows.train)})
        plan = _plan_alone(member, labels.classes, shared).with_native(name, rows.native)
        plan = plan.resolved(len(labels.train), own.parts)
        self._run = run
        self._loss = run.chosen_loss
        self._learner = learner_in(
            plan,
            name,
            plan.model(name, width(rows.train), rows=len(labels.train)),
            own.parts[name],
            held_out=rows.held_out,
            threads=member.threads,
            workers=member.workers,
        )
        self._learner.warm_up(plan.objective)
        self._task: TrainingTask = training_task(plan, own, name)
        self._groups = self._task.group_totals()
        self._held_out = labels.held_out_rows
        self._few = labels.train_rows({}).take(np.arange(min(_LOSS_ROWS, len(own))))
        self.losses: list[float] = []
        """The mean loss of the first training rows after every epoch; they are in a random order."""
        self._best_score: Floats | None = None

    def epochs(self) -> Iterator[int]:
        """Train, epoch by epoch; with `stop_after` as long as held-out rows gain, as joint training does."""
        schedule, stop_after = self._task.schedule, self._run.evaluation.stop_after
        tested: dict[int, float | None] = {}
        for epoch in range(1, schedule.epochs + 1):
            for step in range((epoch - 1) * schedule.blocks, epoch * schedule.blocks):
                self._learn(step)
            self.losses.append(mean_loss(self._loss, self._score_of_few(), self._few))
            if stop_after is not None:
                score = self._score()
                tested[epoch] = mean_loss(self._loss, score, self._held_out)
                best = best_so_far(tested, stop_after)
                if best.epoch == epoch:
                    self._best_score = score
                if best.final_at is not None:
                    return
            yield epoch

    def close(self) -> None:
        """End whoever works for its learner."""
        self._learner.close()

    @property
    def score(self) -> Floats:
        """The scores of the held-out rows, by the model that stays."""
        return self._score() if self._best_score is None else self._best_score

    def _learn(self, step: int) -> None:
        """All passes over one block. The total is the model's own prediction, so its score is `0 + (own now - 0)`."""
        task, visit = self._task, self._task.schedule.visit(step)
        rows = slice(visit.start, visit.stop)
        nothing = np.zeros((visit.size, task.objective.width), self._learner.dtype)
        signal: Signal = Scores(nothing, nothing, task.labels[rows], task.weights[rows], 1.0, task.objective)
        if self._groups is not None:
            own = self._learner.predict(visit.start, visit.stop)
            gradient = self._groups.gradient(visit.start, own)
            signal = Gradients(gradient, own, own, task.weights[rows], 1.0, task.objective)
        for number in range(task.schedule.passes_at(step)):
            self._learner.update(task.block_update(visit, number, task.schedule.first_update(step)), signal)

    def _score(self) -> Floats:
        return self._task.objective.score(self._learner.predict_held_out().astype(np.float64))

    def _score_of_few(self) -> Floats:
        return self._task.objective.score(self._learner.predict(0, len(self._few)).astype(np.float64))


def _plan_alone(member: Member, classes: int, shared: SharedRows) -> Plan:
    """One party, block by block: what limits an exchange with others has no place in it, nor has a head.

    Under "fm" a linear model stays the factorization machine that it is in the run.
    """
    run: RunSettings = member.run
    alone: dict[str, Any] = {"exchanges": None}
    if run.training.joint == "head":
        alone |= {"joint": "sum", "joint_width": None}
    return Plan(
        run.training.model_copy(update=alone),
        {member.name: member.model},
        member.name,
        run.chosen_loss,
        classes,
        line=shared.line,
    )
