"""Few exchanges: alone first, then several passes for each."""

import numpy as np
import pytest

from fdml.party.loop import Worker
from fdml.privacy.ledger import GradientMechanism, epsilon_of
from fdml.protocol.schedule import schedule_of
from fdml.settings import TrainingSettings
from tests.party.workers import DELTA, NOISY, ROWS, Recorder, noisy, run, task_of, through_a_file, train
from tests.privacy.guards import no_protection


def few(epochs=7, exchanges=2):
    return schedule_of(ROWS, TrainingSettings(epochs=epochs, exchanges=exchanges, batch_size=2))


def run_few(recorder, guard=None, schedule=None):
    schedule = schedule or few()
    worker = Worker(recorder, task_of(schedule, 0), guard or no_protection())
    train(worker, recorder)
    return worker


def test_a_party_trains_alone_up_to_the_first_exchange_and_several_passes_after_each():
    recorder = Recorder(others=0.25)
    run_few(recorder)
    assert recorder.calls == [
        "learn", "learn", "send 0", "receive 0", "learn", "learn", "send 1", "receive 1", "learn", "learn", "learn"
    ]  # fmt: skip


def test_alone_the_score_is_the_partys_own_and_nobody_else_moves():
    recorder = Recorder(others=0.25)
    run_few(recorder)
    for number, (block, scores) in enumerate(recorder.updates):
        alone = number < 2
        exchanged = number if alone else 2 if number < 4 else 4
        assert block.start == 0
        assert scores.echo == (1.0 if alone else 3.0)
        np.testing.assert_array_equal(scores.own_at_push, np.full((ROWS, 1), 0.1 + exchanged))
        np.testing.assert_array_equal(scores.total, scores.own_at_push + (0.0 if alone else 0.25))
        np.testing.assert_array_equal(scores.labels, np.arange(ROWS))


def test_the_rates_and_orders_of_few_exchanges_run_on_through_all_passes():
    recorder = Recorder()
    run_few(recorder)
    rates = np.concatenate([block.rates for block, _ in recorder.updates])
    np.testing.assert_allclose(rates, 1.0 - np.arange(len(rates)) / len(rates))
    assert len(rates) == few().updates == 7 * 6
    assert len({tuple(block.order) for block, _ in recorder.updates}) == 7
    for block, _ in recorder.updates:
        assert sorted(block.order) == list(range(ROWS))


def test_training_alone_is_not_repeated_after_a_restart():
    first, again = Recorder(), Recorder()
    worker = Worker(first, task_of(few(), 0), no_protection())
    (push,) = worker.first_messages()
    other = Worker(again, task_of(few(), 0), no_protection())
    other.restore(through_a_file(worker.state()))
    (repeated,) = other.first_messages()
    np.testing.assert_array_equal(repeated.release.values, push.release.values)
    assert (len(first.updates), len(again.updates)) == (2, 0)


def test_every_use_of_a_row_in_noisy_training_is_counted():
    guard = noisy(gradients=GradientMechanism(1.0, 50.0))
    run_few(Recorder(), guard)
    assert (guard.ledger.uses("block 0"), guard.ledger.releases("block 0")) == (7, 2)
    blockwise = noisy(gradients=GradientMechanism(1.0, 50.0))
    _, schedule = run(passes=2, epochs=3, guard=blockwise)
    counted = [(blockwise.ledger.uses(f"block {at}"), blockwise.ledger.releases(f"block {at}")) for at in range(3)]
    assert counted == [(6, 3)] * schedule.blocks


@pytest.mark.parametrize(
    ("uses", "calls"),
    [
        (0, ["stop 0"]),
        (1, ["learn", "stop 0"]),
        (3, ["learn", "learn", "send 0", "receive 0", "stop 1"]),
        (4, ["learn", "learn", "send 0", "receive 0", "learn", "learn", "send 1", "receive 1"]),
    ],
)
def test_learning_ends_where_noisy_training_would_overspend(uses, calls):
    """The passes of an exchange are made all or none; what was pushed is still answered, so that nobody waits."""
    gradients = GradientMechanism(1.0, 5.0)
    guard = noisy(gradients=gradients)
    guard.ledger.budget = epsilon_of(NOISY, 2, DELTA, uses * gradients.squared_mu) if uses else 1e-9
    if uses == 1:
        guard.ledger.budget = epsilon_of(NOISY, 0, DELTA, gradients.squared_mu)
    recorder = Recorder()
    worker = run_few(recorder, guard)
    assert recorder.calls == calls
    assert worker.spent
