"""Trainings from a version in which at first only a new party learns."""

import numpy as np
import pytest

from fdml.models.registry import model_settings
from fdml.party.plan import Plan, build_worker
from fdml.privacy.build_guard import guard_for, seeded_key
from fdml.protocol.fixed_point import grid_of
from fdml.server.coordinator import Coordinator
from fdml.settings import GuardSettings, TrainingSettings
from tests.party.test_few_bits import rows_of, trained
from tests.party.workers import through_a_file

OLD, NEW = ("p0", "p1"), "p2"
EPOCHS, FROZEN = 4, 2


def plan_with(rows, frozen, kind="linear", optimizer="adam", **options):
    chosen = {"epochs": EPOCHS, "batch_size": 20, "batches_per_block": 10, "learning_rate": 0.2, "value_bits": 64}
    training = TrainingSettings(**{**chosen, "frozen_epochs": frozen, **options})
    models = dict.fromkeys(OLD, model_settings(kind)) | {NEW: model_settings(kind, optimizer=optimizer, l2=0.0)}
    return Plan(training, models, "p0", "logistic", 2, new_parties=(NEW,))


def in_turns(rows, plan, start, *, through=False):
    """All parties in one thread; gives each one's state at the end of every epoch."""
    schedule, grid = plan.schedule(len(rows)), grid_of(64)

    def new(name):
        guard = guard_for(GuardSettings(), schedule, seeded_key(7, name), grid=grid, parties=len(rows.parts))
        return build_worker(plan, rows, name, guard, start=start.get(name))

    workers = {name: new(name) for name in rows.parts}
    states = {name: [workers[name].parameters()] for name in workers}
    server = Coordinator(tuple(rows.parts), schedule, 1, 0, grid=grid)
    todo = [(name, message) for name, worker in workers.items() for message in worker.first_messages()]
    while todo:
        name, message = todo.pop(0)
        for reply in server.handle(name, message):
            if through:
                again = new(reply.to)
                again.restore(through_a_file(workers[reply.to].state()))
                workers[reply.to] = again
            worker = workers[reply.to]
            todo += [(reply.to, each) for each in worker.learn(reply.message)]
            if worker.ended_epoch:
                states[reply.to].append({key: array.copy() for key, array in worker.parameters().items()})
    return states


@pytest.fixture(scope="module")
def version():
    """Rows of three parties, and what two of them have learned together."""
    rows = rows_of(3)
    two = type(rows)({name: rows.parts[name] for name in OLD}, rows.labels, rows.weights)
    models = trained(two, 64, epochs=6).models
    return rows, {name: {key: array.copy() for key, array in models[name].state().items()} for name in OLD}


def same(ours, theirs):
    return all(np.array_equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_the_others_stay_bit_by_bit_as_they_were_and_learn_afterwards(version, lookahead):
    rows, start = version
    states = in_turns(rows, plan_with(rows, FROZEN, lookahead=lookahead), start)
    for name in OLD:
        assert all(same(states[name][epoch], states[name][0]) for epoch in range(FROZEN + 1))
        assert not same(states[name][FROZEN + 1], states[name][0])
    assert not same(states[NEW][1], states[NEW][0])


def test_frozen_to_the_end_the_new_party_learns_beside_fixed_scores(version):
    """One batch an epoch: gradient descent on its own weights, with the scores of the others as an offset."""
    rows, start = version
    whole = {"batch_size": len(rows), "batches_per_block": 1, "lookahead": 0, "lr_decay": "constant"}
    plan = plan_with(rows, EPOCHS, optimizer="sgd", **whole)
    states = in_turns(rows, plan, start)
    features = {name: rows.parts[name].values.astype(np.float64) for name in rows.parts}
    offset = sum(features[name] @ states[name][0]["theta"][:4].reshape(4) for name in OLD) + states["p0"][0]["theta"][4]
    assert np.abs(offset).max() > 1.0
    theta = np.zeros(4)
    for _ in range(EPOCHS):
        chance = 1.0 / (1.0 + np.exp(-offset - features[NEW] @ theta))
        theta -= 0.2 * (chance - rows.labels) @ features[NEW] / len(rows)
    assert np.abs(theta).max() > 0.02
    assert np.allclose(states[NEW][-1]["theta"].ravel(), theta, atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "mlp", "fm"])
def test_a_worker_restored_at_any_step_goes_on_bit_by_bit(version, kind):
    rows, start = version
    start = start if kind == "linear" else {}
    plan = plan_with(rows, FROZEN, kind)
    calm, restored = (in_turns(rows, plan, start, through=through) for through in (False, True))
    assert all(same(calm[name][-1], restored[name][-1]) for name in rows.parts)
