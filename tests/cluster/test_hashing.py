"""Hashes of ids that workers make are those that one process makes."""

import numpy as np
import pyarrow as pa
import pytest

from fdml.cluster import hashing as spread
from fdml.cluster.frames import Frame
from fdml.cluster.hashing import SpreadHashing, hashing
from fdml.cluster.jobs import job_of
from fdml.cluster.settings import WorkersSettings
from fdml.data.id_hashes import hash_ids
from fdml.errors import DataError

KEY = b"k" * 32
IDS = pa.array([f"u{number}é" for number in range(1000)], pa.large_string())


@pytest.fixture
def small_tasks(monkeypatch):
    monkeypatch.setattr(spread, "TASK_ROWS", 130)


def check(hashed):
    for ids in (IDS, IDS.slice(17, 700), IDS.slice(0, 3)):
        found = hashed(ids, KEY, 16)
        assert found.shape == (len(ids), 16)
        assert found.tobytes() == hash_ids(ids, KEY, 16).tobytes()
    assert hashed(IDS, b"other", 32).tobytes() == hash_ids(IDS, b"other", 32).tobytes()
    assert hashed(IDS, b"other", 16).tobytes() != hash_ids(IDS, KEY, 16).tobytes()


@pytest.mark.usefixtures("small_tasks")
def test_many_ids_have_the_hashes_of_one_process():
    found = SpreadHashing(WorkersSettings(count=2), few=100)
    check(found)
    found.close()
    check(found)
    found.close()


@pytest.mark.slow
@pytest.mark.usefixtures("small_tasks")
def test_processes_hash_alike():
    found = SpreadHashing(WorkersSettings(kind="processes", count=2), few=100)
    check(found)
    processes = [slot.line._process for slot in found._workers._slots]
    found.close()
    assert all(process.poll() is not None for process in processes)


def test_few_ids_are_hashed_here_and_no_worker_starts():
    with hashing(WorkersSettings(kind="processes")) as hashed:
        check(hashed)
        assert hashed._workers is None
    with hashing(WorkersSettings()) as hashed:
        assert hashed is hash_ids


def test_ids_that_are_missing_are_refused_as_ever():
    ids = pa.array(["a", None] * 200, pa.large_string())
    with pytest.raises(DataError, match="200 rows have no id"):
        SpreadHashing(WorkersSettings(), few=100)(ids, KEY, 16)


def test_a_task_of_one_id_is_one_hash():
    job = job_of(Frame({"job": "hashing"}))
    text = np.frombuffer(b"ab", np.uint8)
    arrays = {"bounds": np.array([0, 2]), "texts": text, "key": np.frombuffer(KEY, np.uint8)}
    found = job.run(Frame({"size": 16}, arrays)).arrays["hashes"]
    assert found.tobytes() == hash_ids(pa.array(["ab"], pa.large_string()), KEY, 16).tobytes()


def test_workers_start_with_the_first_many_and_serve_the_next(monkeypatch):
    monkeypatch.setattr(spread, "TASK_ROWS", 130)
    found = SpreadHashing(WorkersSettings(count=2), few=500)
    assert found(IDS.slice(0, 400), KEY, 16).shape == (400, 16)
    assert found._workers is None
    found(IDS, KEY, 16)
    first = found._workers
    found(IDS, b"other", 16)
    assert found._workers is first
    found.close()
    found.close()
