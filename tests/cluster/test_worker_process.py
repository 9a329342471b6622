"""A worker's loop over pipes, in this process and as a process of its own."""

import io
import signal
import subprocess
import sys

import numpy as np
import pytest

from fdml.cluster.frames import Frame, read_frame, write_frame
from fdml.cluster.jobs import JOBS, job_of
from fdml.cluster.lines import LineLost
from fdml.cluster.processes import ProcessLine, process_workers
from fdml.cluster.shard_frames import change_of, result_of, task_of, update_of
from fdml.cluster.worker_process import answer, work
from fdml.errors import SettingsError, TrainingDiverged, WorkerLost
from fdml.models.objective import objective_for
from fdml.models.shards import Sharding, cut, learn_shard
from tests.cluster.jobs import Doubling
from tests.cluster.learners import ROWS, SHAPE, setup_of
from tests.models.random_updates import build, random_update, settings_of

LOGISTIC = objective_for("logistic", 2)


def tasks(rate=0.05, shards=2):
    """Tasks of a linear model, and what they must give."""
    model, worker = (build(settings_of("linear", optimizer="adam"), SHAPE.width, 1) for _ in range(2))
    (parts,) = cut(
        *random_update(np.random.default_rng(1), "logistic", "single", SHAPE, rate=rate), Sharding(shards, 4)
    )
    state = model.state()
    return [task_of(state, part) for part in parts], lambda: [learn_shard(worker, ROWS, state, part) for part in parts]


def setup_frame(folder):
    return setup_of("linear", optimizer="adam", l2=1e-4).frame(ROWS, folder)


def numbered(task, fence=1):
    return Frame({**task.facts, "fence": fence}, task.arrays)


def same(result, expected):
    found = change_of(result)
    np.testing.assert_array_equal(found.theta, expected.theta)
    assert found.updates == expected.updates
    for name, array in expected.held.items():
        np.testing.assert_array_equal(found.held[name], array)


def test_a_task_comes_out_of_its_frame_as_it_went_in():
    model = build(settings_of("linear"), SHAPE.width, 1)
    (parts,) = cut(*random_update(np.random.default_rng(1), "logistic", "single", SHAPE), Sharding(3, 4))
    for part in parts:
        state, found = update_of(task_of(model.state(), part), LOGISTIC)
        assert state.keys() == model.state().keys()
        assert found.echo == part.echo
        for one, other in zip(found.block, part.block, strict=True):
            np.testing.assert_array_equal(one, other)
        for one, other in zip(found.scores[:5], part.scores[:5], strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_result_comes_out_of_its_frame_as_it_went_in():
    (expected, _) = tasks()[1]()
    same(result_of(expected), expected)


def test_a_worker_answers_each_task_under_its_number_until_the_pipe_ends(tmp_path):
    asked, expected = tasks()
    given, said = io.BytesIO(), io.BytesIO()
    write_frame(given, setup_frame(tmp_path))
    for fence, task in enumerate(asked, 7):
        write_frame(given, numbered(task, fence))
    given.seek(0)
    work(given, said)
    said.seek(0)
    for fence, change in enumerate(expected(), 7):
        result = read_frame(said)
        assert result.facts["fence"] == fence
        same(result, change)
    assert read_frame(said) is None


def test_a_worker_without_a_set_up_ends():
    said = io.BytesIO()
    work(io.BytesIO(), said)
    assert said.getvalue() == b""


def test_an_error_of_a_task_is_an_answer():
    class Failing(Doubling):
        def run(self, task):
            raise SettingsError("wrong")

    found = answer(Failing(), Frame({"fence": 3}))
    assert found.facts == {"fence": 3, "error": "SettingsError", "text": "wrong", "here": False}


def test_a_job_is_chosen_from_those_that_there_are(tmp_path):
    assert set(JOBS) == {"shards", "columns", "learning", "encoding", "hashing"}
    assert type(job_of(setup_frame(tmp_path))).__name__ == "ShardJob"
    with pytest.raises(KeyError):
        job_of(Frame({"job": "os.system"}))


@pytest.mark.slow
def test_processes_do_the_tasks_and_raise_what_a_task_raised(tmp_path):
    asked, expected = tasks(shards=3)
    workers = process_workers(setup_frame(tmp_path), 2, 60.0)
    for result, change in zip(workers.map(asked), expected(), strict=True):
        same(result, change)
    with pytest.raises(TrainingDiverged, match=r"fewer model\.shards"):
        workers.map(tasks(rate=1e30)[0])
    for result, change in zip(workers.map(asked), expected(), strict=True):
        same(result, change)
    assert workers.remarks() == []
    workers.close()


@pytest.mark.slow
def test_a_process_that_does_not_answer_in_time_is_ended(tmp_path):
    line = ProcessLine(setup_frame(tmp_path), 0)
    line._process.send_signal(signal.SIGSTOP)
    with pytest.raises(LineLost, match=r"not answered within 0\.2 s"):
        line.ask(numbered(tasks()[0][0]), 0.2)
    line.end()
    assert line._process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_set_up_that_cannot_work_ends_in_an_error_that_names_the_worker(capfd):
    workers = process_workers(Frame({"job": "none"}), 1, 60.0)
    with pytest.raises(WorkerLost, match=r"worker 0 \(process \d+\) "):
        workers.map(tasks()[0][:1])
    assert "KeyError: 'none'" in capfd.readouterr().err


@pytest.mark.slow
def test_a_worker_ends_with_its_pipe_and_not_by_an_interrupt():
    process = subprocess.Popen(
        [sys.executable, "-m", "fdml.cluster.worker_process"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.communicate(b"", timeout=60) == (b"", None)
    assert process.returncode == 0
