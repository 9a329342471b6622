"""The label party of a run that ranks rows within groups: what it keeps, returns and goes on from."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.models.learner import LocalLearner
from fdml.models.objective import objective_for
from fdml.models.ranking.pairs import RowPairs
from fdml.party.loop import Worker
from fdml.protocol.fixed_point import decode
from fdml.protocol.messages import Gradient
from fdml.protocol.schedule import schedule_for
from tests.models.random_updates import build, stored
from tests.party.workers import KINDS, ROWS, ServerCopy, X, bits, masked, task_of, through_a_file

LABELS = np.array([0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 1], np.float64)
GROUPS = np.array([0, 0, 0, 1, 1, 1, 2, 2, 0, 1, 2])


class RecordingServer(ServerCopy):
    """A server that also writes down the gradients; the same step again must be the same bytes."""

    def __init__(self):
        super().__init__()
        self.gradients = {}

    def take(self, messages):
        pushes = []
        for message in messages:
            if isinstance(message, Gradient):
                raw = message.release.values.tobytes()
                assert self.gradients.setdefault(message.step, raw) == raw
            else:
                pushes.append(message)
        return super().take(pushes)


def label_party(kind="linear", *, loss="pairwise", blind=False):
    schedule = schedule_for(ROWS, 2, 2, 1, 3, 7)
    task = replace(
        task_of(schedule, 1),
        labels=LABELS,
        weights=np.ones(ROWS),
        objective=objective_for(loss, 2),
        groups=GROUPS,
        gradient_party="store",
        watch_loss=True,
    )
    learner = LocalLearner(build(KINDS[kind], 4, 1, key=(7, "model", "store")), stored(X, "dense"))
    return Worker(learner, task, masked(blind=blind)), schedule


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_label_party_restored_at_any_step_returns_the_same_gradients_and_ends_alike(kind):
    worker, _ = label_party(kind)
    server = RecordingServer()
    server.take(worker.first_messages())
    states = [through_a_file(worker.state())]
    while not worker.finished:
        server.take(worker.learn(server.total(worker.step)))
        states.append(through_a_file(worker.state()))
    for state in states:
        again, _ = label_party(kind)
        again.restore(state)
        server.take(again.first_messages())
        while not again.finished:
            server.take(again.learn(server.total(again.step)))
        assert bits(again) == bits(worker)


def test_a_saved_state_does_not_move_with_the_worker():
    worker, _ = label_party()
    server = RecordingServer()
    server.take(worker.first_messages())
    server.take(worker.learn(server.total(0)))
    state = worker.state()
    before = state["group_scores"].copy()
    server.take(worker.learn(server.total(1)))
    assert np.array_equal(state["group_scores"], before, equal_nan=True)


def test_a_gradient_is_that_of_all_rows_of_the_group_at_their_last_totals():
    worker, schedule = label_party()
    server, last, heard = RecordingServer(), np.full(ROWS, np.nan), 0.0
    server.take(worker.first_messages())
    for step in range(schedule.steps):
        visit, sent = schedule.visit(step), []
        answer = server.total(step)
        total = decode(worker._guard.open_total(answer))
        for message in worker.learn(answer):
            sent.append(message)
        server.take(sent)
        last[visit.start : visit.stop] = total
        expected, losses = RowPairs(GROUPS, LABELS).compare(last, visit.start, visit.stop)
        gradient = next(message for message in sent if isinstance(message, Gradient))
        opened = worker._guard.open_gradient(gradient, "store")
        assert opened.ravel() == pytest.approx(expected[:, 0], abs=1e-9)
        heard = losses.sum() + (heard if step % schedule.blocks else 0.0)
        assert worker.loss_sum == pytest.approx(heard)
