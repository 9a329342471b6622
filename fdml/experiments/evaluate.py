"""Learning curves of runs in one process."""

from __future__ import annotations

from fdml.experiments.dataset import JointDataset
from fdml.experiments.in_process import TrainingResult
from fdml.models.calibration import IDENTITY
from fdml.models.metrics import mean_loss
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
        scores = calibration.apply(joint_score(result.models, dataset.train.parts))
        penalty = sum(model.penalty() for model in result.models.values())
        found = result.evaluations[snapshot.epoch]
        records.append(
            EpochRecord(
                snapshot.epoch,
                snapshot.seconds,
                mean_loss(dataset.loss, scores, dataset.train) + penalty,
                float("nan") if found.test_loss is None else found.test_loss,
                float("nan") if found.test_metric is None else found.test_metric,
            )
        )
    for name, state in last.items():
        result.models[name].restore(state)
    return records
