"""What runs on a node, in this process: the job behind bytes, and what a machine says of itself."""

import os
import platform

import numpy as np
import pytest

from fdml.cluster.frames import Frame, from_bytes, to_bytes
from fdml.cluster.lines import error_of
from fdml.cluster.ray_actor import RayWorker, content_of, file_facts, installed, processor
from fdml.cluster.row_files import file_places, place_key, with_sent
from fdml.errors import SettingsError
from tests.cluster.test_worker_process import numbered, same, setup_frame, tasks


def ask(worker, task):
    return from_bytes(worker.answer(to_bytes(task)))


def test_a_worker_answers_tasks_under_their_numbers(tmp_path):
    worker = RayWorker()
    assert from_bytes(worker.begin(to_bytes(setup_frame(tmp_path)), [])).facts == {}
    asked, expected = tasks()
    for fence, (task, change) in enumerate(zip(asked, expected(), strict=True), 7):
        result = ask(worker, numbered(task, fence))
        assert result.facts["fence"] == fence
        same(result, change)


@pytest.mark.slow
def test_a_worker_whose_rows_were_sent_gives_the_same(tmp_path):
    setup = setup_frame(tmp_path)
    places = list(file_places(setup.facts))
    names = {place_key(place): f"sent/{number}" for number, place in enumerate(places)}
    contents = [content_of(place) for place in places]
    for content in contents:
        content.setflags(write=False)
    worker = RayWorker()
    worker.begin(to_bytes(Frame(with_sent(setup.facts, names))), list(names.values()), *contents)
    asked, expected = tasks()
    for task, change in zip(asked, expected(), strict=True):
        same(ask(worker, numbered(task)), change)


def test_settings_that_cannot_work_are_an_answer(tmp_path):
    setup = setup_frame(tmp_path)
    wrong = Frame({**setup.facts, "model": {**setup.facts["model"], "shards": 0}})
    answer = from_bytes(RayWorker().begin(to_bytes(wrong), []))
    error = error_of(answer, "a machine")
    assert isinstance(error, SettingsError)
    assert "shards" in str(error)


def test_a_task_before_the_set_up_is_refused():
    with pytest.raises(RuntimeError, match="before it was set up"):
        RayWorker().answer(to_bytes(Frame({"fence": 1})))


def test_a_machine_tells_the_versions_of_all_that_results_could_depend_on():
    found = installed()
    assert found["python"] == platform.python_version()
    assert found["numpy"] == np.__version__
    assert found.keys() == {"python", "fdml", "numpy", "scipy", "numba", "llvmlite"}
    assert processor()


def test_a_file_is_another_one_when_its_size_or_its_time_is(tmp_path):
    path = tmp_path / "rows"
    assert file_facts(str(path)) is None
    path.write_bytes(b"1234")
    first = file_facts(str(path))
    assert first == [4, path.stat().st_mtime_ns]
    os.utime(path, ns=(0, first[1] + 1))
    assert file_facts(str(path)) != first
    path.write_bytes(b"12345")
    assert file_facts(str(path))[0] == 5
