from __future__ import annotations

import numpy as np
import pytest

from fdml.data.rows import as_rows
from fdml.data.table import PartyData, Table
from fdml.run.compare import Contender, compare, workload
from fdml.run.evaluate import mean_loss, metric
from fdml.run.calibration import calibrate
from fdml.run.problem import Sample, pose
from fdml.settings import ModelSettings, TrainingSettings
from fdml.watch.events import EpochDone
from fdml.watch.history import SCHEMES

TASKS = {"binary": lambda s: s > 0, "multiclass": lambda s: np.digitize(s, [-1, 1]), "regression": lambda s: 50 + 9 * s}


def problem_of(task, rows=2000, empty_label_party=False):
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, 6)).astype(np.float32)
    labels = TASKS[task](X @ [1, 1, 1, -1, -1, 1] + random.normal(size=rows) * 0.3)
    names = tuple("abcdef")
    first = (as_rows(X[:, :0]), ()) if empty_label_party else (as_rows(X[:, :3]), names[:3])
    return pose(
        {"p": PartyData(Table(*first, labels=labels)), "q": PartyData(Table(as_rows(X[:, 3:]), names[3:]))},
        "p", task, None, 0.3, 0,
    )  # fmt: skip


def contender(epochs=30):
    return Contender(
        "LR", TrainingSettings(epochs=epochs, batch_size=10, learning_rate="auto"), dict.fromkeys("pq", ModelSettings())
    )


@pytest.mark.parametrize("task", TASKS)
def test_joint_comes_near_pooled_and_beats_alone(task):
    problem, heard = problem_of(task), []
    curves = compare(problem, [contender()], [1, 2], heard.append)
    last = {curve.scheme: curve.last for curve in curves}
    assert tuple(last) == SCHEMES
    assert last["joint"].test_metric >= last["pooled"].test_metric - 0.01
    assert min(last["joint"].test_metric, last["late fusion"].test_metric) > last["alone"].test_metric + 0.05
    assert max(last["joint"].test_loss, last["late fusion"].test_loss) < last["alone"].test_loss
    assert all(len(curve.records) == 30 for curve in curves)
    assert len([e for e in heard if isinstance(e, EpochDone)]) == workload(problem, [contender()], [1, 2])


def test_a_label_party_without_features_has_no_alone_scheme():
    curves = compare(problem_of("binary", empty_label_party=True), [contender(2)], [1])
    assert [curve.scheme for curve in curves] == ["late fusion", "pooled", "joint"]


def test_training_seconds_grow_through_the_epochs():
    for curve in compare(problem_of("binary"), [contender()], [1]):
        seconds = [record.seconds for record in curve.records]
        assert seconds == sorted(seconds)
        assert seconds[0] > 0


def test_calibration_finds_the_scale_and_offset_that_were_put_in():
    random = np.random.default_rng(0)
    logit = random.normal(size=20_000) * 2
    labels = (random.random(20_000) < 1 / (1 + np.exp(-logit))).astype(float)
    sample = Sample({}, labels, np.ones(20_000))
    found = calibrate("logistic", (logit[:, None] - 1.0) * 3.0, sample)
    assert found.scale == pytest.approx(1 / 3, rel=0.05)
    assert found.offset[0] == pytest.approx(1.0, rel=0.1)


def test_calibration_never_makes_the_loss_worse():
    problem = problem_of("multiclass")
    score = np.random.default_rng(1).normal(size=(len(problem.train), 3))
    moved = calibrate("softmax", score, problem.train).apply(score)
    assert mean_loss("softmax", moved, problem.train) <= mean_loss("softmax", score, problem.train)


def test_metrics_are_those_of_their_names():
    sample = Sample({}, np.array([0.0, 1.0, 1.0, 0.0]), np.ones(4))
    assert metric("binary", np.array([[0.1], [0.9], [0.4], [0.4]]), sample) == 0.875
    assert metric("multiclass", np.array([[1, 0], [0, 1], [1, 0], [1, 0]]), sample) == 0.75
    assert metric("regression", sample.labels[:, None], sample) == 1.0
