"""A party in shards: who can, who cannot, and that the result is the same whoever works."""

import gc
import os
import signal
from pathlib import Path

import pytest

from fdml.cluster.settings import WorkersSettings
from fdml.cluster.shard_job import shard_job
from fdml.cluster.sharding import check_shards, sharding_of, start_workers
from fdml.errors import SettingsError
from fdml.models.registry import model_settings
from tests.cluster.learners import ROWS, digest, learner, setup_of, update


@pytest.mark.slow
def test_the_result_depends_on_the_shards_and_not_on_who_works():
    found = {}
    for workers in (WorkersSettings(count=1), WorkersSettings(count=3), WorkersSettings(kind="processes", count=2)):
        each = learner(workers)
        for seed in range(3):
            update(each, seed)
        each.close()
        found[workers.kind, workers.count] = digest(each)
        assert each.events() == []
    assert len(set(found.values())) == 1, found
    other = learner(WorkersSettings(), setup_of(shards=3))
    for seed in range(3):
        update(other, seed)
    assert digest(other) not in found.values()


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing_but_what_is_told():
    calm, killed = learner(WorkersSettings(count=1)), learner(WorkersSettings(kind="processes", count=2))
    for seed in range(3):
        if seed == 1:
            process = killed._workers._slots[0].line._process
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        for each in (calm, killed):
            update(each, seed)
    assert digest(killed) == digest(calm)
    (event,) = killed.events()
    assert event.party == "shop"
    assert f"worker 0 (process {process.pid})" in event.text
    killed.close()


def test_a_process_is_set_up_as_a_thread_is(tmp_path):
    setup = setup_of()
    here, there = setup.job(ROWS), shard_job(setup.frame(ROWS, tmp_path))
    assert there._objective == here._objective
    assert there._model.state().keys() == here._model.state().keys()


def test_groups_of_too_many_shards_are_averaged_and_that_is_told():
    each = learner(WorkersSettings(), setup_of(shards=9))
    update(each, 1)
    (event,) = each.events()
    assert "2 groups of them are averaged" in event.text
    assert each.events() == []


@pytest.mark.parametrize("kind", ["trees", "trees+mlp", "torch"])
def test_a_kind_that_is_trained_in_one_piece_is_refused(kind):
    more = {"module": "m:build"} if kind == "torch" else {}
    with pytest.raises(
        SettingsError, match=rf"model\.shards is 2.*kind '{kind}'.*linear, fm or mlp".replace("+", r"\+")
    ):
        check_shards(model_settings(kind, shards=2, **more), "sum", "logistic", noisy=False)
    check_shards(model_settings(kind, **more), "sum", "logistic", noisy=False)


def test_other_joint_functions_and_noise_in_training_are_refused():
    settings = model_settings("linear", shards=2)
    check_shards(settings, "sum", "logistic", noisy=False)
    with pytest.raises(SettingsError, match="joint = \"sum\" alone; the run has 'fm'"):
        check_shards(settings, "fm", "logistic", noisy=False)
    with pytest.raises(SettingsError, match=r"'pairwise' compares rows.*set model\.shards = 1"):
        check_shards(settings, "sum", "pairwise", noisy=False)
    with pytest.raises(SettingsError, match=r"\[guard\.training\].*model\.shards = 1"):
        check_shards(settings, "sum", "logistic", noisy=True)


def test_there_are_never_more_workers_than_tasks():
    assert WorkersSettings(count=8).workers(3) == 3
    assert WorkersSettings(count=2).workers(3) == 2
    assert 1 <= WorkersSettings().workers(1000) == (os.cpu_count() or 1)


def test_rows_in_memory_are_in_a_folder_that_goes_with_the_workers():
    setup = setup_of()
    workers = start_workers(setup, ROWS, WorkersSettings(kind="processes"))
    folders = [Path(place["file"]).parent for place in _places(workers)]
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in folders)
    del workers
    gc.collect()
    assert not any(folder.exists() for folder in folders)


def _places(workers):
    """Where the rows are that workers are set up with; none of them has been started."""
    (setup,) = [cell.cell_contents for cell in workers._open_line.__closure__]
    return [place for place in setup.facts["rows"].values() if isinstance(place, dict)]


@pytest.mark.parametrize(
    ("kind", "optimizer", "shards", "groups"),
    [
        ("linear", "sgd", 8, 1),
        ("linear", "sgd", 9, 2),
        ("linear", "adam", 4, 4),
        ("mlp", "adam", 8, 1),
        ("mlp", "adam", 9, 2),
        ("mlp", "sgd", 8, 2),
        ("mlp", "factored", 8, 1),
        ("fm", "adagrad", 5, 2),
    ],
)
def test_how_many_shards_are_added_up_goes_by_kind_and_optimizer(kind, optimizer, shards, groups):
    sharding = sharding_of(model_settings(kind, optimizer=optimizer, shards=shards))
    assert sharding.groups == groups
    assert sharding.echo == shards / groups


def test_an_average_that_is_meant_is_not_told():
    each = learner(WorkersSettings(), setup_of("linear", shards=9))
    update(each, 1)
    assert each.events() == []


@pytest.mark.parametrize(
    ("kind", "optimizer", "shards", "shorter"),
    [
        ("mlp", "adam", 1, False),
        ("mlp", "adam", 2, True),
        ("fm", "adam", 4, True),
        ("mlp", "sgd", 4, False),
        ("linear", "adam", 4, False),
    ],
)
def test_shards_that_are_added_up_with_adam_take_shorter_steps_and_meet_more_often(kind, optimizer, shards, shorter):
    sharding = sharding_of(model_settings(kind, optimizer=optimizer, shards=shards))
    assert (sharding.step < 1.0) is shorter
    assert (sharding.round_batches > 0) is shorter
