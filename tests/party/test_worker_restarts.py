"""Workers that stop and go on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.privacy.releases import ReleaseStore
from tests.examples import examples
from tests.party.workers import GUARDS, KINDS, ServerCopy, bits, finish, new_worker, noisy, through_a_file
from tests.storage.memory_disk import MemoryDisk


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lookahead", [0, 1, 3])
@pytest.mark.parametrize("guard", GUARDS)
def test_a_worker_restored_at_any_step_goes_on_bit_by_bit(kind, lookahead, guard):
    worker, schedule = new_worker(kind, lookahead=lookahead, passes=2, guard=GUARDS[guard]())
    server = ServerCopy()
    server.take(worker.first_messages())
    states = [through_a_file(worker.state())]
    while not worker.finished:
        server.take(worker.learn(server.total(worker.step)))
        states.append(through_a_file(worker.state()))
    for step, state in enumerate(states):
        again, _ = new_worker(kind, lookahead=lookahead, passes=2, guard=GUARDS[guard]())
        again.restore(state)
        assert again.step == step
        resent = server.take(again.first_messages())
        assert resent == list(range(step, min(step + lookahead + 1, schedule.steps)))
        assert bits(finish(again, server)) == bits(worker)


def test_a_saved_state_does_not_move_with_the_worker():
    worker, _ = new_worker("momentum")
    server = ServerCopy()
    server.take(worker.first_messages())
    server.take(worker.learn(server.total(0)))
    state = worker.state()
    before = {name: array.tobytes() for name, array in state.items()}
    finish(worker, server)
    assert {name: array.tobytes() for name, array in state.items()} == before


@examples(40)
@given(st.integers(0, 3), st.data())
def test_any_number_of_crashes_changes_nothing(lookahead, data):
    """A crash takes the worker back to its last saved state; the server has what was sent since."""
    fault_free_run, schedule = new_worker(lookahead=lookahead)
    clean = ServerCopy()
    clean.take(fault_free_run.first_messages())
    finish(fault_free_run, clean)
    server, saved = ServerCopy(), None
    for _ in range(data.draw(st.integers(1, 5))):
        worker, _ = new_worker(lookahead=lookahead)
        if saved is not None:
            worker.restore(saved)
        server.take(worker.first_messages())
        for _ in range(data.draw(st.integers(0, schedule.steps - worker.step))):
            server.take(worker.learn(server.total(worker.step)))
            if data.draw(st.booleans()):
                saved = through_a_file(worker.state())
    assert bits(finish(worker, server)) == bits(fault_free_run)
    assert server.releases == clean.releases


def test_a_release_is_stored_and_never_drawn_again():
    """The second start has another noise key: were anything drawn again, it would show."""
    disk = MemoryDisk()
    worker, _ = new_worker(lookahead=2, guard=noisy(store=ReleaseStore(disk)))
    server = ServerCopy()
    server.take(worker.first_messages())
    state = through_a_file(worker.state())
    server.take(worker.learn(server.total(0)))
    guard = noisy(store=ReleaseStore(disk), key=b"o")
    again, _ = new_worker(lookahead=2, guard=guard)
    again.restore(state)
    assert server.take(again.first_messages()) == [0, 1, 2]
    assert server.take(again.learn(server.total(0))) == [3]
    assert sum(guard.ledger.state()["releases"].values()) == 4
    assert bits(again) == bits(worker)
