"""How good a score is: loss, and the measure that fits the task."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

from fdml.errors import LabelError
from fdml.party.losses import LOSSES, Floats
from fdml.party.models import Model
from fdml.run.problem import Problem, Sample
from fdml.run.simulate import Outcome, joint_score
from fdml.settings import Loss, Task
from fdml.watch.history import EpochRecord


def mean_loss(loss: Loss, score: Floats, sample: Sample) -> float:
    """The weighted mean loss of the rows."""
    return float(np.average(LOSSES[loss].value(score, sample.labels), weights=sample.weights))


def metric(task: Task, score: Floats, sample: Sample) -> float:
    """AUC, accuracy or R2, by task."""
    labels, weights = sample.labels, sample.weights
    match task:
        case "binary":
            if len(np.unique(labels)) < 2:
                raise LabelError("all test rows have the same label, so there is no AUC; hold out more rows")
            return float(roc_auc_score(labels, score[:, 0], sample_weight=weights))
        case "multiclass":
            return float(accuracy_score(labels, score.argmax(axis=1), sample_weight=weights))
        case "regression":
            return float(r2_score(labels, score[:, 0], sample_weight=weights))


def history(problem: Problem, outcome: Outcome) -> list[EpochRecord]:
    """The figures of every epoch a run kept, computed after the run so that its seconds are training alone."""
    last = {name: model.state() for name, model in outcome.models.items()}
    records = []
    for snapshot in outcome.snapshots:
        for name, state in snapshot.states.items():
            outcome.models[name].restore(state)
        records.append(_record(problem, outcome.models, snapshot.epoch, snapshot.seconds))
    for name, state in last.items():
        outcome.models[name].restore(state)
    return records


def _record(problem: Problem, models: Mapping[str, Model], epoch: int, seconds: float) -> EpochRecord:
    trained = joint_score(models, problem.train.parts)
    tested = joint_score(models, problem.test.parts)
    return EpochRecord(
        epoch,
        seconds,
        mean_loss(problem.loss, trained, problem.train) + sum(model.penalty() for model in models.values()),
        mean_loss(problem.loss, tested, problem.test),
        metric(problem.code.task, tested, problem.test),
    )
