"""How good a score is: loss, and the measure that fits the task."""

from __future__ import annotations

from collections.abc import Mapping

from fdml.experiments.dataset import JointDataset
from fdml.experiments.in_process import TrainingResult
from fdml.models.calibration import IDENTITY, Calibration
from fdml.models.metrics import mean_loss, metric
from fdml.models.model import Model
from fdml.monitor.history import EpochRecord
from fdml.party.plan import joint_score


def history(problem: JointDataset, outcome: TrainingResult) -> list[EpochRecord]:
    """The figures of every epoch a run kept, computed after the run so that its seconds are training alone."""
    last = {name: model.state() for name, model in outcome.models.items()}
    records = []
    for snapshot in outcome.snapshots:
        for name, state in snapshot.states.items():
            outcome.models[name].restore(state)
        last_one = snapshot is outcome.snapshots[-1]
        reading = outcome.calibration if last_one else IDENTITY
        records.append(record_of(problem, outcome.models, reading, snapshot.epoch, snapshot.seconds))
    for name, state in last.items():
        outcome.models[name].restore(state)
    return records


def record_of(
    problem: JointDataset, models: Mapping[str, Model], reading: Calibration, epoch: int, seconds: float
) -> EpochRecord:
    """The figures of these models as they are."""
    trained = reading.apply(joint_score(models, problem.train.parts, problem.objective))
    tested = reading.apply(joint_score(models, problem.test.parts, problem.objective))
    return EpochRecord(
        epoch,
        seconds,
        mean_loss(problem.loss, trained, problem.train) + sum(model.penalty() for model in models.values()),
        mean_loss(problem.loss, tested, problem.test),
        metric(problem.encoding.task, tested, problem.test),
    )
