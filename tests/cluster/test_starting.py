"""Workers as settings ask for them: of which kind, how many, told of and ended whatever happens."""

import numpy as np
import pytest

from fdml.cluster.frames import Frame
from fdml.cluster.lines import LinedWorkers
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.starting import workers_of, working
from fdml.cluster.workers import ThreadWorkers
from tests.cluster.jobs import FaultyLine

HASHING = Frame({"job": "hashing"})


def test_threads_and_processes_are_started_by_their_kind():
    threads = workers_of(WorkersSettings(count=2), HASHING, 5)
    assert isinstance(threads, ThreadWorkers)
    threads.close()
    processes = workers_of(WorkersSettings(kind="processes", count=2, seconds=7), HASHING, 5)
    assert isinstance(processes, LinedWorkers)
    assert len(processes._slots) == 2
    assert processes._seconds == 7
    assert all(slot.line is None for slot in processes._slots), "a process starts with its first task"
    processes.close()


def test_there_are_no_more_of_them_than_tasks():
    processes = workers_of(WorkersSettings(kind="processes", count=8), HASHING, 3)
    assert len(processes._slots) == 3
    processes.close()


@pytest.mark.parametrize("fails", [False, True])
def test_workers_are_told_of_and_end_with_their_block_also_if_it_fails(monkeypatch, fails):
    opened, faults, said = [], ["lost"], []

    def on_faulty_lines(_setup, count, seconds):
        return LinedWorkers(lambda number: FaultyLine(number, faults, opened), count, seconds)

    monkeypatch.setattr("fdml.cluster.elsewhere.process_workers", on_faulty_lines)
    tasks = [Frame({"number": 3}, {"x": np.arange(2)})]
    try:
        with working(WorkersSettings(kind="processes", count=1), HASHING, 1, said.append) as workers:
            assert workers.map(tasks)[0].facts["done"] == 3
            if fails:
                raise LookupError
    except LookupError:
        assert fails
    (text,) = said
    assert text.startswith("machine 0 is gone; its task is done again")
    assert all(line.ended for line in opened)
    assert len(opened) == 2


def test_an_error_of_a_task_comes_out_of_threads_as_it_was():
    with working(WorkersSettings(count=2), HASHING, 2, lambda _: None) as workers, pytest.raises(KeyError):
        workers.map([Frame({"size": 16}), Frame({"size": 16})])
