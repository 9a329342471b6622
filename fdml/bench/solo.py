"""Training in one place with the parties' own kernels: nothing to push, nobody to wait for.

This is what joint training is measured against, pooled or alone: one pass of
updates over every block and no more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from fdml.data.rows import width
from fdml.party.kernels import Lesson
from fdml.run.calibration import AS_IT_IS
from fdml.run.evaluate import record_of
from fdml.run.problem import Problem, Sample
from fdml.run.simulate import Plan, homework_for, warm_up
from fdml.settings import ModelSettings, TrainingSettings
from fdml.watch.history import EpochRecord


class Solo:
    """One model over all features that a sample has."""

    def __init__(self, plan: Plan, sample: Sample) -> None:
        (self._party,) = plan.models
        self._homework = homework_for(plan, sample, self._party)
        self.model = plan.model(self._party, width(sample.parts[self._party]))
        self._outputs = plan.outputs
        self._epoch = 0
        warm_up(self.model, self._homework.rows, plan.outputs)

    def epoch(self) -> float:
        """Train one epoch more; gives its seconds."""
        blocks = self._homework.schedule.blocks
        began = time.perf_counter()
        for step in range(self._epoch * blocks, (self._epoch + 1) * blocks):
            self._learn(step)
        self._epoch += 1
        return time.perf_counter() - began

    def _learn(self, step: int) -> None:
        mine = self._homework
        visit = mine.schedule.visit(step)
        edges = mine.schedule.edges(visit)
        nothing = np.zeros((visit.size, self._outputs), self.model.dtype)
        rates = mine.rate.of(mine.schedule.first_update(step), len(edges) - 1)
        labels, weights = mine.labels[visit.start : visit.stop], mine.weights[visit.start : visit.stop]
        order = mine.schedule.order(visit, 0)
        self.model.learn(
            mine.rows,
            Lesson(visit.start, order, edges, rates, nothing, nothing, 1.0, labels, weights, mine.loss.code),
        )


def train_solo(problem: Problem, model: ModelSettings, training: TrainingSettings) -> Iterator[EpochRecord]:
    """The figures of every epoch of training a problem that one party holds; its seconds are of training alone."""
    plan = Plan(training, {problem.label_party: model}, problem.label_party, problem.loss, problem.code.outputs)
    solo = Solo(plan, problem.train)
    seconds = 0.0
    for epoch in range(1, training.epochs + 1):
        seconds += solo.epoch()
        yield record_of(problem, {problem.label_party: solo.model}, AS_IT_IS, epoch, seconds)
