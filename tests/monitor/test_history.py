from typing import get_args

import pytest

from fdml.monitor.history import SCHEMES, EpochRecord, LearningCurve, Scheme, mean_records, metric_of
from fdml.settings.choices import Task


def records(*metrics):
    return [EpochRecord(at + 1, float(at), 0.5 * metric, 0.25, metric) for at, metric in enumerate(metrics)]


def test_the_figures_of_a_curve_are_those_of_its_last_epoch_not_of_its_best():
    curve = LearningCurve("LR", "joint", tuple(records(0.7, 0.9, 0.8)))
    assert curve.last.epoch == 3
    assert curve.last.test_metric == 0.8


def test_the_mean_of_runs_is_taken_epoch_by_epoch():
    mean = mean_records([records(0.5, 0.7), records(0.7, 0.8), records(0.6, 0.9)])
    assert [record.epoch for record in mean] == [1, 2]
    assert [record.test_metric for record in mean] == pytest.approx([0.6, 0.8])
    assert [record.train_objective for record in mean] == pytest.approx([0.3, 0.4])
    assert [record.seconds for record in mean] == [0.0, 1.0]


def test_the_mean_of_one_run_is_that_run():
    assert mean_records([records(0.5, 0.7)]) == tuple(records(0.5, 0.7))


def test_runs_of_different_lengths_have_no_mean():
    with pytest.raises(ValueError, match="shorter"):
        mean_records([records(0.5, 0.7), records(0.5)])


def test_every_task_has_a_metric_and_every_scheme_is_listed():
    assert [metric_of(task, None) for task in get_args(Task)] == ["auc", "accuracy", "r2"]
    assert set(SCHEMES) == set(get_args(Scheme))


def test_a_regression_is_measured_by_r2_with_squared_loss_and_else_by_d2():
    found = [metric_of("regression", loss) for loss in ("squared", "poisson", "quantile", "quantile(0.9)")]
    assert found == ["r2", "d2", "d2", "d2"]
    assert metric_of("binary", "hinge") == "auc"
