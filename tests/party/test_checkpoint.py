import numpy as np
import pytest

from fdml.errors import DataError, StateCorrupt
from fdml.party.checkpoint import Checkpoint, CheckpointStore, FinishedModel, Progress, SavedState, first_messages
from fdml.protocol.messages import Gradient, HeldOutPredictions, Push, Release, SealedMetrics, Stop
from tests.storage.memory_disk import MemoryDisk, PowerCut

FACTS = {"run.toml": "abc", "data": "def", "model": "{}"}
RESULT = FinishedModel(FACTS, b"m" * 32, reported=False)


def checkpoint(step, **fields):
    arrays = {"position": np.array([step + 1, step + 2, 9]), "model/weights": np.linspace(0, step + 1, 4)}
    return Checkpoint(FACTS, step, arrays, fields.pop("progress", Progress()), **fields)


def saved_on(disk):
    return CheckpointStore(disk).load()


def test_a_new_party_has_saved_nothing():
    assert saved_on(MemoryDisk()) == SavedState(1, None, None)


def test_the_newest_checkpoint_is_loaded_with_the_very_bits_that_were_saved():
    disk = MemoryDisk()
    store = CheckpointStore(disk)
    for step in range(4):
        store.save(checkpoint(step))
    found = saved_on(disk).checkpoint
    assert (found.step, found.facts) == (3, FACTS)
    assert found.worker.keys() == checkpoint(3).worker.keys()
    for name, array in checkpoint(3).worker.items():
        assert (found.worker[name].dtype, found.worker[name].tobytes()) == (array.dtype, array.tobytes())


def test_progress_comes_back_as_it_was():
    disk, progress = MemoryDisk(), Progress(3.5, {2: (1.0, 0.25), 10: (2.5, 0.125)}, evaluations=10)
    CheckpointStore(disk).save(checkpoint(0, progress=progress))
    assert saved_on(disk).checkpoint.progress == progress


def test_what_the_server_may_not_have_is_saved_with_the_state_in_order():
    held_out = [HeldOutPredictions(epoch, Release(np.arange(3) + epoch, 7)) for epoch in range(1, 13)]
    gradient, metrics = Gradient(4, Release(np.array([9]), 7)), SealedMetrics(1, b"s" * 60)
    disk = MemoryDisk()
    CheckpointStore(disk).save(checkpoint(0, unacknowledged=(*held_out, gradient, metrics)))
    found = saved_on(disk).checkpoint
    assert [type(message) for message in found.unacknowledged[-2:]] == [Gradient, SealedMetrics]
    assert [message.epoch for message in found.unacknowledged[:-2]] == list(range(1, 13)), "12 comes after 2"
    assert [message.release.values.tolist() for message in found.unacknowledged[:2]] == [[1, 2, 3], [2, 3, 4]]
    assert found.unacknowledged[-1] == metrics
    assert found.worker.keys() == checkpoint(0).worker.keys(), "the worker is given its own arrays only"


@pytest.mark.parametrize("damage", [b"", b"torn", None])
def test_where_the_newest_checkpoint_is_damaged_the_one_before_it_is_loaded(damage):
    disk = MemoryDisk()
    store = CheckpointStore(disk)
    for step in (0, 1):
        store.save(checkpoint(step))
    before, content = saved_on(disk).checkpoint.step, disk.read("checkpoint.0")
    disk.replace("checkpoint.0", content[:-20] if damage is None else damage)
    assert (before, saved_on(disk).checkpoint.step) == (1, 0)


@pytest.mark.parametrize("torn", [0, 40])
def test_a_power_cut_during_a_save_leaves_the_checkpoint_before_it(torn):
    disk = MemoryDisk()
    CheckpointStore(disk).save(checkpoint(0))
    failing = MemoryDisk(disk.files, writes_left=0, torn=torn)
    with pytest.raises(PowerCut):
        CheckpointStore(failing).save(checkpoint(1))
    assert saved_on(failing.copy()).checkpoint.step == 0


def test_every_start_has_a_number_of_its_own_from_before_it_does_anything():
    disk = MemoryDisk()
    assert [saved_on(disk).incarnation for _ in range(3)] == [1, 2, 3]


def test_starts_go_on_counting_after_a_fresh_start():
    """Else a process of before could write after the new one, and the server would take it for the newer."""
    disk = MemoryDisk()
    store = CheckpointStore(disk)
    store.load()
    store.save(checkpoint(0))
    store.save_result(RESULT)
    store.clear()
    assert saved_on(disk) == SavedState(2, None, None)


@pytest.mark.parametrize("reported", [False, True])
def test_a_result_comes_back_with_whether_the_server_knows_it(reported):
    disk, result = MemoryDisk(), FinishedModel(FACTS, bytes(range(32)), reported=reported)
    CheckpointStore(disk).save_result(result)
    assert saved_on(disk).result == result


def test_the_result_that_was_saved_last_counts():
    disk = MemoryDisk()
    store = CheckpointStore(disk)
    store.save_result(RESULT)
    store.save_result(FinishedModel(FACTS, RESULT.model_hash, reported=True))
    assert saved_on(disk).result.reported


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"data": "other"}, "data"),
        ({"data": "other", "run.toml": "new"}, r"run\.toml and data"),
        ({"model": ""}, "model"),
    ],
)
def test_state_of_another_run_is_refused_with_what_differs(other, named):
    saved = SavedState(2, checkpoint(0))
    with pytest.raises(StateCorrupt, match=rf"another {named}; put it back, or give the run a new name"):
        saved.check_facts({**FACTS, **other})


def test_state_of_the_same_run_is_taken_and_so_is_none():
    SavedState(2, checkpoint(0)).check_facts(FACTS)
    SavedState(1).check_facts({"data": "anything"})


def test_a_fact_that_older_state_does_not_know_is_no_difference():
    SavedState(2, checkpoint(0)).check_facts({**FACTS, "new": "fact"})


def test_nothing_of_a_checkpoint_is_unpickled():
    """A file that someone else could have written must not run code."""
    disk = MemoryDisk()
    with pytest.raises(DataError, match="only numbers and text can be stored"):
        CheckpointStore(disk).save(Checkpoint(FACTS, 0, {"objects": np.array([object()])}, Progress()))


def test_a_start_sends_what_may_be_lost_then_its_pushes_and_that_it_stops_only_after_them():
    metrics, push, stop = SealedMetrics(1, b"sealed"), Push(4, Release(np.arange(3))), Stop(5)
    assert list(first_messages(checkpoint(3, unacknowledged=(stop, metrics)), [push])) == [metrics, push, stop]
    assert list(first_messages(None, [push])) == [push]
