"""Answers that a party may not learn from."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.party.loop import Worker
from fdml.protocol.messages import Gradient, Release, Total
from fdml.protocol.schedule import schedule_for
from tests.party.workers import PRECISE, ROWS, Group, Recorder, ServerCopy, bits, new_worker, task_of, train
from tests.privacy.guards import no_protection


@pytest.mark.parametrize("staleness", [0, 1, 2, 4])
def test_a_total_is_learned_from_only_if_each_part_is_of_its_block_and_no_older_than_the_run_allows(staleness):
    schedule = schedule_for(ROWS, 2, 2, 1, 3, 7)
    steps = range(schedule.steps)
    for step in steps:
        visits = [-1] + [at for at in steps if at <= step and schedule.visit(at).block == schedule.visit(step).block]
        oldest = max(at for at in visits if at <= step - staleness or at == -1)
        for made in range(-1, schedule.steps):
            worker, _ = new_worker(lookahead=0, staleness=staleness, epochs=3)
            server = ServerCopy()
            server.take(worker.first_messages())
            for at in range(step):
                server.take(worker.learn(server.total(at)))
            total = replace(server.total(step), pushed_at=(step, made))
            if made in visits and made >= oldest:
                list(worker.learn(total))
                assert worker.step == step + 1
                continue
            before = worker.parameters()
            with pytest.raises(MessageRefused, match=f"total of step {step} has a part of step {made}; ") as refused:
                list(worker.learn(total))
            assert refused.value.refusal is Refusal.INVALID
            assert worker.step == step
            np.testing.assert_equal(worker.parameters(), before)


@pytest.mark.parametrize("made", [(3, 3), (5, 5), (2, 5)])
def test_at_staleness_0_every_part_is_of_that_very_step(made):
    """One block: each step visits it, so an old part is of the right rows and yet refused."""
    schedule = schedule_for(ROWS, 2, "all", 1, 9, 7)
    recorder = Recorder()
    worker = Worker(recorder, task_of(schedule, 0), no_protection())
    recorder.pushed_at = lambda step: made if step == 4 else (step, step)
    with pytest.raises(
        MessageRefused, match=r"the total of step 4 has a part of step \d; the run allows none before 4"
    ):
        train(worker, recorder)
    assert worker.step == 4


def test_a_refused_total_leaves_the_worker_as_it_was():
    worker, _ = new_worker(lookahead=1)
    server = ServerCopy()
    server.take(worker.first_messages())
    before = bits(worker)
    with pytest.raises(MessageRefused):
        list(worker.learn(replace(server.total(0), pushed_at=(-1,))))
    assert bits(worker) == before


@pytest.mark.parametrize("private", [False, True])
def test_an_answer_of_the_wrong_kind_is_refused(private):
    """Of a gradient where labels are shared, or a total where they are private, only nonsense could be learned."""
    group = Group("logistic", PRECISE["linear"], gradient_party="store" if private else None, lookahead=0)
    worker = group.workers["browser"]
    (push,) = worker.first_messages()
    values = push.release.values
    wrong = Total(0, values, (0, 0, 0)) if private else Gradient(0, Release(values, 5))
    with pytest.raises(MessageRefused):
        list(worker.learn(wrong))
