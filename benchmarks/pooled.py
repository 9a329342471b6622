"""Training in one place with the parties' own kernels: nothing to push, nobody to wait for.

This is what joint training is measured against, pooled or alone: one pass of
updates over every block and no more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from fdml.data.row_set import RowSet
from fdml.data.rows import drop_unit_values, width
from fdml.experiments.dataset import JointDataset
from fdml.experiments.evaluate import training_objective
from fdml.models.calibration import IDENTITY
from fdml.models.learner import LocalLearner
from fdml.models.metrics import mean_loss, metric
from fdml.models.signals import BlockUpdate, Scores
from fdml.monitor.history import EpochRecord
from fdml.party.plan import Plan, joint_score, training_task
from fdml.settings import ModelSettings, TrainingSettings


class PooledTrainer:
    """One model over all features that a sample has."""

    def __init__(self, plan: Plan, sample: RowSet) -> None:
        (self._party,) = plan.models
        rows = drop_unit_values(sample.parts[self._party])
        self._task = training_task(plan, sample, self._party)
        self.model = plan.model(self._party, width(rows))
        self._learner = LocalLearner(self.model, rows)
        self._learner.warm_up(plan.objective)
        self._epoch = 0

    def epoch(self) -> float:
        """Train one epoch more; gives its seconds."""
        blocks = self._task.schedule.blocks
        began = time.perf_counter()
        for step in range(self._epoch * blocks, (self._epoch + 1) * blocks):
            self._learn(step)
        self._epoch += 1
        return time.perf_counter() - began

    def _learn(self, step: int) -> None:
        mine = self._task
        visit = mine.schedule.visit(step)
        batch_bounds = mine.schedule.batch_bounds(visit)
        nothing = np.zeros((visit.size, mine.objective.width), self.model.dtype)
        rates = mine.rate.of(mine.schedule.first_update(step), len(batch_bounds) - 1)
        labels, weights = mine.labels[visit.start : visit.stop], mine.weights[visit.start : visit.stop]
        block = BlockUpdate(visit.start, mine.schedule.order(visit, 0), batch_bounds, rates)
        self._learner.update(block, Scores(nothing, nothing, labels, weights, 1.0, mine.objective))


def train_pooled(problem: JointDataset, model: ModelSettings, training: TrainingSettings) -> Iterator[EpochRecord]:
    """The figures of every epoch of training a problem that one party holds; its seconds are of training alone."""
    plan = Plan(training, {problem.label_party: model}, problem.label_party, problem.loss, problem.encoding.class_count)
    plan = plan.resolved(len(problem.train), problem.train.parts)
    solo = PooledTrainer(plan, problem.train)
    seconds = 0.0
    for epoch in range(1, plan.agreed(len(problem.train)).epochs + 1):
        seconds += solo.epoch()
        models = {problem.label_party: solo.model}
        scores = joint_score(models, problem.test.parts, problem.objective)
        yield EpochRecord(
            epoch,
            seconds,
            training_objective(problem, models, IDENTITY),
            mean_loss(problem.loss, scores, problem.test),
            metric(problem.encoding.task, scores, problem.test, problem.loss),
        )
