"""A party in column groups: who can, who cannot, and that the result is the same whoever works."""

import gc
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from fdml.cluster.column_groups import check_column_groups, start_workers
from fdml.cluster.column_job import TRAIN, column_job
from fdml.cluster.settings import WorkersSettings
from fdml.errors import DataError, SettingsError
from fdml.models.column_groups import grouped_model
from fdml.models.learner import LocalLearner
from fdml.models.registry import build_model, model_settings
from tests.cluster.grouped import GROUPS, framed, learner, settings_of, setup_of
from tests.cluster.learners import ROWS, digest, update
from tests.models.random_updates import stored


@pytest.mark.slow
def test_the_result_is_the_same_whoever_works():
    found = {}
    for workers in (WorkersSettings(count=1), WorkersSettings(count=3), WorkersSettings(kind="processes", count=2)):
        each = learner(workers, held_out=ROWS)
        for seed in range(3):
            update(each, seed)
        predicted = each.predict(0, 600).tobytes(), each.predict_held_out().tobytes()
        each.close()
        found[workers.kind, workers.count] = digest(each), predicted
        assert (each.predict(0, 600).tobytes(), each.predict_held_out().tobytes()) == predicted
        assert each.events() == []
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("average", [None, 0.9])
def test_workers_of_frames_and_files_give_the_bits_of_a_model_that_learns_by_itself(tmp_path, average):
    setup = setup_of("linear", average=average)
    alone = LocalLearner(build_model(setup.settings, setup.spec), ROWS, held_out=ROWS)
    there = framed(setup, tmp_path, held_out=ROWS)
    for seed in range(3):
        update(alone, seed)
        update(there, seed)
    assert digest(there) == digest(alone)
    assert there.predict(100, 300).tobytes() == alone.predict(100, 300).tobytes()
    assert there.predict_held_out().tobytes() == alone.predict_held_out().tobytes()


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
    assert f"worker 0 (process {process.pid})" in event.text
    killed.close()


def test_without_held_out_rows_there_is_nothing_to_predict():
    with pytest.raises(DataError, match="no held-out rows"):
        learner(setup=setup_of("linear")).predict_held_out()


def test_a_process_is_set_up_as_a_thread_is(tmp_path):
    setup = setup_of()
    rows = {TRAIN: [ROWS, ROWS, ROWS]}
    here, there = setup.job(rows), column_job(setup.frame(rows, tmp_path))
    assert there._objective == here._objective
    assert [each.state().keys() for each in there._models] == [each.state().keys() for each in here._models]


def test_a_worker_opens_the_rows_of_a_group_when_it_is_first_asked_for_them(tmp_path):
    setup = setup_of("linear")
    each = framed(setup, tmp_path)
    each.predict(0, 10)
    for slot in each._workers._slots:
        if slot.line is not None:
            assert {part for part, _ in slot.line._job._rows} <= {TRAIN}
            assert len(slot.line._job._rows) <= 3


def test_the_columns_of_each_group_are_in_a_folder_that_goes_with_the_workers():
    setup = setup_of("linear")
    features = grouped_model(build_model(setup.settings, setup.spec)).features
    workers = start_workers(setup, {TRAIN: ROWS}, features, WorkersSettings(kind="processes"))
    (facts,) = [cell.cell_contents for cell in workers._open_line.__closure__]
    folders = [Path(group["indices"]["file"]).parent for group in facts.facts["rows"][TRAIN]]
    assert len(set(folders)) == 3
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in folders)
    del workers
    gc.collect()
    assert not any(folder.exists() for folder in folders)


@pytest.mark.parametrize("kind", ["trees", "trees+mlp", "torch"])
def test_a_kind_that_is_trained_in_one_piece_is_refused(kind):
    more = {"module": "m:build"} if kind == "torch" else {}
    with pytest.raises(SettingsError, match="in one piece; take linear, fm or mlp"):
        check_column_groups(model_settings(kind, column_groups=GROUPS, **more), "sum", "logistic", noisy=False)
    check_column_groups(model_settings(kind, **more), "fm", "logistic", noisy=False)


@pytest.mark.parametrize(
    ("changed", "given", "text"),
    [
        ({}, ("fm", "logistic", False), "joint = \"sum\" alone; the run has 'fm'"),
        ({}, ("sum", "pairwise", False), "'pairwise' compares rows of all parts"),
        ({}, ("sum", "logistic", True), "adds its noise to whole batches"),
        ({"shards": 2}, ("sum", "logistic", False), r"model\.shards is 2; leave one of them out"),
        ({"column_groups": {"a": ("x",), "b": ("y", "x")}}, ("sum", "logistic", False), "has column 'x' twice"),
    ],
)
def test_what_does_not_go_with_column_groups_is_refused(changed, given, text):
    settings = settings_of("linear").model_copy(update=changed)
    joint, loss, noisy = given
    with pytest.raises(SettingsError, match=text):
        check_column_groups(settings, joint, loss, noisy=noisy)


def test_dense_rows_of_groups_are_predicted_as_those_of_one_matrix():
    dense = stored(np.random.default_rng(2).normal(size=(50, setup_of().spec.inputs)), "dense")
    each = learner(setup=setup_of("linear"), rows=dense)
    assert each.predict(3, 20).tobytes() == LocalLearner(each._model, dense).predict(3, 20).tobytes()
