"""The job of column groups: tasks in, predictions or states out, and nothing kept between them but rows."""

import numpy as np
import pytest

from fdml.cluster.column_job import HELD_OUT, TRAIN, learning, predicting, predictions_of
from fdml.cluster.frames import Frame
from fdml.models.column_groups import group_rows, state_of
from fdml.models.registry import build_model
from tests.cluster.grouped import setup_of
from tests.cluster.learners import ROWS, SHAPE, passed
from tests.models.random_updates import random_update

SETUP = setup_of("linear")
MODEL = build_model(SETUP.settings, SETUP.spec)
PARTS = [group_rows(ROWS, features) for features in MODEL.features]


def job():
    return SETUP.job({TRAIN: PARTS, HELD_OUT: PARTS})


def learned(group, seed=1):
    block, scores = random_update(np.random.default_rng(seed), "logistic", "single", SHAPE)
    return learning(group, state_of(MODEL.state(), group), block, scores)


@pytest.mark.parametrize("group", [0, 1, 2])
def test_a_task_gives_the_same_bits_however_often_it_is_done_and_after_whatever_else(group):
    task, worker = learned(group), job()
    first = worker.run(task)
    worker.run(learned((group + 1) % 3, seed=2))
    for again in (worker.run(task), job().run(passed(task))):
        assert all(np.array_equal(first.arrays[name], again.arrays[name]) for name in first.arrays)
    assert not np.array_equal(first.arrays["theta"], MODEL.models[group].state()["theta"])


@pytest.mark.parametrize("part", [TRAIN, HELD_OUT])
def test_a_group_predicts_by_the_state_of_the_task_alone(part):
    worker, task = job(), predicting(1, state_of(MODEL.state(), 1), part, 5, 25)
    before = predictions_of(worker.run(task))
    moved = worker.run(learned(1)).arrays
    assert before.shape == (20, 1)
    assert predictions_of(worker.run(task)).tobytes() == before.tobytes()
    assert predictions_of(worker.run(predicting(1, moved, part, 5, 25))).tobytes() != before.tobytes()


def test_rows_are_opened_once_and_only_those_of_the_group_that_is_asked_for():
    opened = []
    worker = job()
    worker._open = lambda part, group: opened.append((part, group)) or PARTS[group]
    for _ in range(2):
        worker.run(predicting(2, state_of(MODEL.state(), 2), TRAIN, 0, 3))
    assert opened == [(TRAIN, 2)]


def test_a_set_up_names_its_job_and_the_files_of_every_group(tmp_path):
    frame = SETUP.frame({TRAIN: PARTS}, tmp_path)
    assert isinstance(frame, Frame)
    assert frame.facts["job"] == "columns"
    places = [group["values"]["file"] for group in frame.facts["rows"][TRAIN]]
    assert len(set(places)) == 3
    assert passed(frame).facts["rows"] == frame.facts["rows"]
