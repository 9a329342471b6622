"""What a snapshot takes, in memory and on disk: a run on a fast line has thousands of answers since its checkpoints."""

import tracemalloc

import numpy as np
import pytest

from fdml.protocol.messages import Gradient, Push, Release, Total
from fdml.protocol.schedule import schedule_for
from fdml.server.coordinator import Coordinator
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.snapshot_arrays import (
    answer_arrays,
    answers_of,
    digest_arrays,
    digests_of,
    release_arrays,
    releases_of,
)
from fdml.settings import RunSettings, TrainingSettings
from fdml.storage.disk import FolderDisk
from tests.server.run_states import PARTIES, RUN_HASH, deliver, hello
from tests.server.run_states import labels as labels_of

ROWS, BATCH, EPOCHS = 2000, 100, 30
STEPS = EPOCHS * ROWS // BATCH
DEFINITION = RunDefinition(
    RunSettings(
        parties=PARTIES,
        label_party="store",
        training=TrainingSettings(epochs=EPOCHS, batch_size=BATCH, batches_per_block=1),
    ),
    RUN_HASH,
)


def push(party, step):
    return Push(step, Release(np.full(BATCH, 1000 * step + PARTIES.index(party))))


def played(disk, steps):
    """A server that has served so many steps since anybody's last checkpoint."""
    state = RunState.open(DEFINITION, disk)
    for party in PARTIES:
        deliver(state, party, hello(rows=ROWS, held_out=0))
    sealed = bytes(labels_of().sealed_size("binary", 2, ROWS, weighted=False))
    deliver(state, "store", labels_of(sealed=sealed))
    for step in range(steps):
        for party in PARTIES:
            deliver(state, party, push(party, step))
    return state


def test_a_snapshot_takes_little_more_than_what_is_in_it(tmp_path):
    """Of a run of 600 steps a second it had 50 MB and took 100 MB of memory and two seconds: all parties waited."""
    before = played(FolderDisk(tmp_path), STEPS - 1)
    answers = [reply.message for reply in before.coordinator.resend("store", -1)]
    held = sum(each.values.nbytes for each in answers)
    state = RunState.open(DEFINITION, FolderDisk(tmp_path), rotate_bytes=1)
    tracemalloc.start()
    try:
        deliver(state, "guard", push("guard", STEPS - 1))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    stored = (tmp_path / "snapshot.1").stat().st_size
    assert len(answers) == STEPS - 1
    assert stored < 1.5 * held, "what three parties were served is there once"
    assert most < 6 * held
    assert len((tmp_path / "journal").read_bytes()) < 1000, "the log began anew"


def test_a_server_that_is_started_again_sends_all_the_one_answer_that_they_share(tmp_path):
    """It is made into bytes once, however many it goes to."""
    played(FolderDisk(tmp_path), 5)
    deliver(RunState.open(DEFINITION, FolderDisk(tmp_path), rotate_bytes=1), "guard", push("guard", 5))
    again = RunState.open(DEFINITION, FolderDisk(tmp_path))
    answers = [[reply.message for reply in again.coordinator.resend(party, -1)] for party in PARTIES]
    assert [total.step for total in answers[0]] == [0, 1, 2, 3, 4]
    for shared in zip(*answers, strict=True):
        assert len({id(total) for total in shared}) == 1
        np.testing.assert_array_equal(shared[0].values.ravel(), 3000 * shared[0].step + 3)


def total(step, rows, **other):
    return Total(step, np.arange(rows).reshape(rows, 1) + step, (step, step - 1), **other)


def test_answers_of_all_kinds_come_back_as_they_were_each_under_its_step():
    short, masked = total(4, 1, variance=0.5, bits=4), total(5, 3, mask_ids=(7, 2**63), variance=1.5)
    one, other = total(4, 2, mask_ids=(1, 2)), Gradient(5, Release(np.arange(3), 9, 0.25, 4, 2))
    served = [{5: masked}, {}, {4: one, 5: other}]
    found = answers_of(answer_arrays(served), 3)
    assert [list(each) for each in found] == [[5], [], [4, 5]]
    for mine, theirs in ((masked, found[0][5]), (one, found[2][4])):
        np.testing.assert_equal(vars(theirs), vars(mine))
    np.testing.assert_equal(vars(found[2][5].release), vars(other.release))
    alone = answers_of(answer_arrays([{4: short}]), 1)
    np.testing.assert_equal(vars(alone[0][4]), vars(short))


def test_releases_and_digests_come_back_under_their_numbers():
    releases = {3: Release(np.arange(2), 5, 0.5), 9: Release(np.arange(3), 0, 0.0, 4, 2), 10: Release(np.arange(0))}
    found = releases_of(release_arrays("some", releases), "some")
    assert list(found) == list(releases)
    for number, release in releases.items():
        np.testing.assert_equal(vars(found[number]), vars(release))
    digests = {3: (2**64 - 1, bytes(16)), 9: (0, b"\xff" * 16)}
    assert digests_of(digest_arrays("some", digests), "some") == digests


def test_where_there_is_nothing_nothing_is_stored():
    assert answer_arrays([{}, {}]) | release_arrays("some", {}) | digest_arrays("some", {}) == {}
    assert answers_of({}, 2) == [{}, {}]
    assert releases_of({}, "some") == digests_of({}, "some") == {}


@pytest.mark.parametrize("private", [False, True])
def test_the_number_of_arrays_does_not_grow_with_the_steps(private):
    schedule, counts = schedule_for(40, 2, 2, 1, 40, 7), set()
    coordinator = Coordinator(PARTIES, schedule, 1, 3, gradient_party="store" if private else None)
    for step in range(300):
        for party in PARTIES:
            values = np.full(schedule.visit(step).size, step)
            coordinator.handle(party, Push(step, Release(values)))
        if private:
            coordinator.handle("store", Gradient(step, Release(values, 5)))
        if step >= 10:
            counts.add(len(coordinator.state()))
    assert len(counts) == 1
