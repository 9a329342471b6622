"""A budget that is spent, at this party or another."""

import numpy as np
import pytest

from tests.party.workers import Recorder, ServerCopy, bits, finish, new_worker, noisy, run, through_a_file


def sent_by(worker):
    """All that a worker sends to its end, as kinds and steps."""
    server, order = ServerCopy(), []

    def note(messages):
        for message in messages:
            order.append((type(message).__name__, message.step))
            server.take([message])

    note(worker.first_messages())
    while not worker.finished:
        note(worker.learn(server.total(worker.step)))
    return order


@pytest.mark.parametrize("lookahead", [0, 1, 2, 9])
@pytest.mark.parametrize("allowed", [1, 2])
def test_a_spent_budget_is_announced_once_and_what_was_pushed_is_finished(lookahead, allowed):
    worker, schedule = new_worker(lookahead=lookahead, guard=noisy(allowed=allowed), epochs=3)
    end = allowed * schedule.blocks
    order = sent_by(worker)
    assert order == [*(("Push", step) for step in range(end)), ("Stop", end)]
    assert (worker.step, worker.end, worker.ended_early, worker.finished) == (end, end, True, True)
    assert "one more release of block" in worker.spent
    assert worker.last_epoch == schedule.epochs


def test_a_budget_that_lasts_is_not_announced():
    worker, schedule = new_worker(guard=noisy(allowed=3), epochs=3)
    assert sent_by(worker) == [("Push", step) for step in range(schedule.steps)]
    assert (worker.ended_early, worker.spent) == (False, "")


def test_a_budget_for_nothing_ends_before_the_first_step():
    guard = noisy()
    guard.ledger.budget = 1e-9
    worker, _ = new_worker(guard=guard)
    before = {name: array.copy() for name, array in worker.parameters().items()}
    assert sent_by(worker) == [("Stop", 0)]
    assert worker.finished
    np.testing.assert_equal(worker.parameters(), before)


@pytest.mark.parametrize("lookahead", [0, 1, 2])
def test_the_model_at_an_early_end_is_that_of_the_steps_before_it(lookahead):
    """A budget ends training; it does not change it."""
    early, schedule = new_worker(lookahead=lookahead, guard=noisy(allowed=1))
    sent_by(early)
    long, _ = new_worker(lookahead=lookahead, guard=noisy())
    server = ServerCopy()
    server.take(long.first_messages())
    while long.step < schedule.blocks:
        server.take(long.learn(server.total(long.step)))
    np.testing.assert_equal(early.parameters(), long.parameters())


def test_a_spent_budget_is_announced_again_after_a_restart_and_only_once_in_each():
    """The server may have died before it had stored it; the same step again changes nothing there."""
    worker, schedule = new_worker(lookahead=1, guard=noisy(allowed=1))
    server = ServerCopy()
    server.take(worker.first_messages())
    states = []
    while not worker.finished:
        server.take(worker.learn(server.total(worker.step)))
        if worker.spent:
            states.append(through_a_file(worker.state()))
    assert server.stops == [schedule.blocks]
    assert len(states) == 2
    for state in states:
        again, _ = new_worker(lookahead=1, guard=noisy(allowed=1))
        again.restore(state)
        server.take(again.first_messages())
        assert bits(finish(again, server)) == bits(worker)
        assert (again.spent, again.end) == (worker.spent, worker.end)
    assert server.stops == [schedule.blocks] * 3


@pytest.mark.parametrize("stop", [0, 1, 2, 4])
def test_a_run_that_another_party_ended_ends_here_too(stop):
    recorder, schedule = run(epochs=2, recorder=Recorder(stop=stop))
    assert [call for call in recorder.calls if call == "learn"] == ["learn"] * stop
    assert f"receive {stop}" in recorder.calls
    assert f"receive {stop + 1}" not in recorder.calls
    assert not [call for call in recorder.calls if call.startswith("stop")]
    assert max(recorder.pushed) <= min(stop + 1, schedule.steps - 1)


def test_an_end_that_another_party_set_is_kept_over_a_restart():
    worker, schedule = new_worker(lookahead=1)
    server = ServerCopy()
    server.take(worker.first_messages())
    server.take(worker.learn(server.total(0)))
    worker.stop_at(2)
    again, _ = new_worker(lookahead=1)
    again.restore(through_a_file(worker.state()))
    assert (again.end, again.ended_early, again.finished, again.spent) == (2, True, False, "")
    again.stop_at(schedule.steps)
    assert again.end == 2, "an end does not move back"
    server.take(again.first_messages())
    server.take(again.learn(server.total(1)))
    assert again.finished
    assert sorted(server.releases) == [0, 1, 2], "what was pushed ahead has left; nothing more follows"
