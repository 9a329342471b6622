from random import Random

import numpy as np
import pytest

from fdml.errors import StateCorrupt
from fdml.models.learner import LocalLearner
from fdml.party.checkpoint import CheckpointStore, SessionProgress, forget_training
from fdml.protocol.messages import HeldOutPredictions, Metrics, Release, Total
from fdml.settings import RunSettings, TrainingSettings
from simulator.scenarios import HashingModel, Scenario
from simulator.world import VirtualDisk

FACTS = {"run.toml": "abc", "data": "def"}


@pytest.fixture
def disk():
    return VirtualDisk(Random(0))


@pytest.fixture
def worker():
    """At its first step of many, lookahead 1."""
    case = Scenario.draw(Random(1))
    training = TrainingSettings(epochs=50, batch_size=2, batches_per_block=1, lookahead=1)
    settings = RunSettings(parties=case.settings.parties, label_party="a", task="regression", training=training)
    case = Scenario(settings, case.rows, case.held_out, 0, case.features, {})
    worker = case.worker("a", case.labels, case.guard("a", 1, None))
    list(worker.first_messages())
    return worker


def learn(worker):
    """One step from a total of nothing but zeros."""
    size = worker._task.schedule.visit(worker.step).size
    list(worker.learn(Total(worker.step, np.zeros((size, 1), np.int64), (worker.step,))))


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_state_is_saved_when_its_time_has_come(disk, worker):
    clock = Clock()
    keeper = CheckpointStore(disk, FACTS, 5.0, clock)
    learn(worker)
    assert keeper.after_step(worker, SessionProgress()) == -1
    assert keeper.load(SessionProgress()) is None
    clock.now += 5.0
    learn(worker)
    assert keeper.after_step(worker, SessionProgress()) == -1, "one generation alone may be damaged"
    saved = CheckpointStore(disk, FACTS, 5.0, clock).load(SessionProgress())
    assert saved["position"].tolist() == [2, 3, worker.end]
    clock.now += 5.0
    learn(worker)
    assert keeper.after_step(worker, SessionProgress()) == 1, "the older of two generations stands after step 1"


def test_a_loaded_state_goes_on_as_the_saved_one_would_have(disk, worker):
    keeper = CheckpointStore(disk, FACTS, 0.0)
    learn(worker)
    keeper.after_step(worker, SessionProgress())
    saved = CheckpointStore(disk, FACTS, 0.0).load(SessionProgress())
    learner = LocalLearner(HashingModel(), worker.learner._rows)
    twin = type(worker)(learner, worker._task, worker._guard)
    twin.restore(saved)
    learn(worker)
    learn(twin)
    assert {k: v.tobytes() for k, v in twin.state().items()} == {k: v.tobytes() for k, v in worker.state().items()}


def test_after_a_restart_nothing_is_given_up_before_a_newer_state_is_saved(disk, worker):
    """The newest generation may be damaged after the restart too; then the one before it is gone on with."""
    clock = Clock()
    keeper = CheckpointStore(disk, FACTS, 0.0, clock)
    for _ in range(2):
        learn(worker)
        keeper.after_step(worker, SessionProgress())
    again = CheckpointStore(disk, FACTS, 1.0, clock)
    again.load(SessionProgress())
    learn(worker)
    assert again.after_step(worker, SessionProgress()) == -1
    disk.damage("checkpoint.0")
    older = CheckpointStore(disk, FACTS, 0.0).load(SessionProgress())
    assert older["position"][0] == 1


def test_what_the_server_may_not_have_is_saved_with_the_state_in_order(disk, worker):
    unacknowledged = [HeldOutPredictions(epoch, Release(np.arange(3) + epoch)) for epoch in range(1, 13)] + [
        Metrics(1, 2.0, 0.5, 0.5, 0.9)
    ]
    keeper = CheckpointStore(disk, FACTS, 0.0)
    learn(worker)
    keeper.after_step(worker, SessionProgress(3.5, {2: (1.0, 0.25)}, unacknowledged))
    found = SessionProgress()
    saved = CheckpointStore(disk, FACTS, 0.0).load(found)
    assert (found.seconds, found.pending) == (3.5, {2: (1.0, 0.25)})
    assert [letter.epoch for letter in found.unacknowledged] == [*range(1, 13), 1]
    assert [letter.release.values.tolist() for letter in found.unacknowledged[:2]] == [[1, 2, 3], [2, 3, 4]]
    assert found.unacknowledged[-1] == unacknowledged[-1]
    assert not any(key.startswith("letter") for key in saved), "the worker is given its own arrays only"


def test_state_of_another_run_is_refused_with_what_differs(disk, worker):
    learn(worker)
    CheckpointStore(disk, FACTS, 0.0).after_step(worker, SessionProgress())
    with pytest.raises(StateCorrupt, match=r"another data; put it back, or start over with --fresh"):
        CheckpointStore(disk, {**FACTS, "data": "other"}, 0.0).load(SessionProgress())


def test_starts_are_counted_and_go_on_counting_after_a_fresh_start(disk, worker):
    keeper = CheckpointStore(disk, FACTS, 0.0)
    assert [keeper.next_incarnation(), keeper.next_incarnation()] == [1, 2]
    learn(worker)
    keeper.after_step(worker, SessionProgress())
    keeper.note_result(b"model")
    forget_training(disk)
    again = CheckpointStore(disk, FACTS, 0.0)
    assert again.load(SessionProgress()) is None
    assert again.result() is None
    assert CheckpointStore(disk, FACTS, 0.0).next_incarnation() == 3


def test_a_result_counts_for_its_own_run_only(disk):
    CheckpointStore(disk, FACTS, 0.0).note_result(b"model")
    assert CheckpointStore(disk, FACTS, 0.0).result() == b"model"
    assert CheckpointStore(disk, {**FACTS, "data": "other"}, 0.0).result() is None
