"""The loop, with a learner and a server that only write down what passes."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.models.losses import LOSSES
from fdml.models.objective import objective_for
from fdml.models.signals import Scores
from fdml.protocol.fixed_point import decode
from tests.party.workers import GUARDS, Recorder, ServerCopy, Y, bits, new_worker, run, total_of


def test_without_lookahead_every_push_follows_the_update_before_it():
    recorder, _ = run(lookahead=0)
    assert recorder.calls == [
        "send 0", "receive 0", "learn", "send 1", "receive 1", "learn", "send 2", "receive 2", "learn"
    ]  # fmt: skip


def test_with_lookahead_the_pushes_run_ahead():
    recorder, _ = run(lookahead=1)
    assert recorder.calls == [
        "send 0", "send 1", "receive 0", "learn", "send 2", "receive 1", "learn", "receive 2", "learn"
    ]  # fmt: skip


def test_a_lookahead_past_the_end_pushes_every_step_once():
    recorder, schedule = run(lookahead=9)
    assert sorted(recorder.pushed) == list(range(schedule.steps))


@pytest.mark.parametrize("lookahead", [0, 1, 2])
def test_what_is_pushed_is_predicted_with_the_parameters_of_that_moment(lookahead):
    recorder, schedule = run(lookahead=lookahead, epochs=2)
    for step in range(schedule.steps):
        updates_before = max(0, step - lookahead)
        np.testing.assert_allclose(decode(recorder.pushed[step].values), 0.1 + updates_before, atol=1e-9)
        np.testing.assert_array_equal(recorder.updates[step][1].own_at_push, 0.1 + updates_before)


def test_an_update_holds_the_block_its_order_and_its_rates():
    recorder, schedule = run(passes=2, epochs=2)
    assert len(recorder.updates) == 2 * schedule.steps
    rates = []
    for number, (block, scores) in enumerate(recorder.updates):
        visit = schedule.visit(number // 2)
        assert isinstance(scores, Scores)
        assert block.start == visit.start
        np.testing.assert_array_equal(block.order, schedule.order(visit, number % 2))
        np.testing.assert_array_equal(block.batch_bounds, schedule.batch_bounds(visit))
        np.testing.assert_array_equal(scores.labels, np.arange(visit.start, visit.stop))
        np.testing.assert_array_equal(scores.weights, np.arange(visit.start, visit.stop) + 100)
        assert (scores.echo, scores.objective) == (3.0, objective_for("squared", 0))
        rates.extend(block.rates)
    np.testing.assert_allclose(rates, 1.0 - np.arange(schedule.updates) / schedule.updates)


@pytest.mark.parametrize("guard", GUARDS)
def test_the_score_holds_the_partys_own_part_as_it_is_not_as_the_guard_let_it_out(guard):
    recorder, _ = run(lookahead=0, recorder=Recorder(others=0.25), guard=GUARDS[guard]())
    as_they_are = [np.abs(decode(release.values) - 0.1 - at).max() < 1e-9 for at, release in recorder.pushed.items()]
    assert all(as_they_are) if guard == "open" else not any(as_they_are)
    for number, (_, scores) in enumerate(recorder.updates):
        np.testing.assert_array_equal(scores.total, 0.25 + (0.1 + number))
        np.testing.assert_array_equal(scores.own_at_push, 0.1 + number)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("guard", GUARDS)
def test_scores_are_in_the_models_precision(dtype, guard):
    recorder, _ = run(recorder=Recorder(others=1.0, dtype=dtype), guard=GUARDS[guard]())
    for _, scores in recorder.updates:
        assert scores.total.dtype == scores.own_at_push.dtype == dtype
        np.testing.assert_array_equal(scores.total, (1.0 + scores.own_at_push.astype(np.float64)).astype(dtype))


def test_a_total_off_the_wire_is_flat_and_means_the_same():
    outcomes = []
    for flatten in (False, True):
        worker, _ = new_worker()
        pushed = {push.step: push.release for push in worker.first_messages()}
        while not worker.finished:
            total = total_of(worker.step, pushed[worker.step])
            if flatten:
                total = replace(total, values=total.values.reshape(-1))
            pushed |= {push.step: push.release for push in worker.learn(total)}
        outcomes.append(bits(worker))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("at_once", [8192, 3])
def test_the_loss_of_an_epoch_is_that_of_its_totals(at_once, monkeypatch):
    monkeypatch.setattr("fdml.party.block_loss._AT_ONCE", at_once)
    worker, schedule = new_worker(lookahead=0)
    server = ServerCopy()
    server.take(worker.first_messages())
    for epoch in (1, 2):
        expected = 0.0
        for _ in range(schedule.blocks):
            visit = schedule.visit(worker.step)
            total = server.total(worker.step)
            scores = decode(total.values).reshape(-1, 1).astype(np.float32)
            expected += LOSSES["logistic"].value(scores, Y[visit.start : visit.stop]).sum()
            assert not worker.ended_epoch or worker.step == schedule.blocks
            server.take(worker.learn(total))
        assert worker.ended_epoch
        assert worker.epoch == epoch
        np.testing.assert_allclose(worker.loss_sum, expected, rtol=1e-5)
