"""Learning curves of runs in one process."""

from __future__ import annotations

from collections.abc import Mapping

from fdml.experiments.dataset import JointDataset
from fdml.experiments.in_process import TrainingResult
from fdml.models.calibration import IDENTITY, Calibration
from fdml.models.metrics import mean_loss
from fdml.models.model import Model
from fdml.monitor.history import EpochRecord
from fdml.party.plan import joint_score


def learning_curve(dataset: JointDataset, result: TrainingResult) -> list[EpochRecord]:
    """The figures of every epoch a run kept.

    Those of the held-out rows are what the label party found in the run. The
    training objective is computed here, after the run, as no single party could.
    """
    last = {name: model.state() for name, model in result.models.items()}
    records = []
    for snapshot in result.snapshots:
        for name, state in snapshot.states.items():
            result.models[name].restore(state)
        calibration = result.calibration if snapshot is result.snapshots[-1] else IDENTITY
        found = result.evaluations[snapshot.epoch]
        records.append(
            EpochRecord(
                snapshot.epoch,
                snapshot.seconds,
                training_objective(dataset, result.models, calibration),
                float("nan") if found.test_loss is None else found.test_loss,
                float("nan") if found.test_metric is None else found.test_metric,
            )
        )
    for name, state in last.items():
        result.models[name].restore(state)
    return records


def training_objective(dataset: JointDataset, models: Mapping[str, Model], calibration: Calibration) -> float:
    """Mean training loss plus the parties' regularisers."""
    scores = calibration.apply(joint_score(models, dataset.train.parts, dataset.objective))
    return mean_loss(dataset.loss, scores, dataset.train) + sum(model.penalty() for model in models.values())
