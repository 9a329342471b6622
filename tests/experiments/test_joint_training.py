"""Promise 2 and the promises of echo, on the whole of a9a."""

from __future__ import annotations

import numpy as np
import pytest

from fdml.data.rows import to_dense, width
from fdml.errors import TrainingDiverged
from fdml.experiments.in_process import train_in_process
from fdml.models.metrics import metric
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.settings import TrainingSettings
from tests.conftest import train_on

LR = model_settings("linear", optimizer="sgd", l2=3e-4)
LITERAL = {"batch_size": 100, "learning_rate": 0.5, "batches_per_block": 1, "lookahead": 0, "staleness": 0}
"""The paper's Algorithm 1."""


def weights_of(outcome, problem):
    """All weights in the order of the parties, and the label party's bias."""
    parts = [outcome.models[name].parameters for name in problem.train.parts]
    bias = parts[0][-1]
    parts[0] = parts[0][:-1]
    return np.concatenate([*parts, [bias]])


@pytest.mark.slow
@pytest.mark.parametrize("parties", [2, 3, 5])
def test_joint_lr_batch_by_batch_equals_pooled_sgd(a9a_of, parties):
    problem = a9a_of(parties)
    joint = train_on(problem, LR, epochs=3, **LITERAL)
    pooled = train_on(problem.pooled(), LR, epochs=3, **LITERAL)
    np.testing.assert_allclose(weights_of(joint, problem), weights_of(pooled, problem.pooled()), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_linear_parties_under_fm_equal_a_pooled_factorization_machine_on_a9a(a9a_of):
    problem, numbers = a9a_of(2), 9
    whole, names = problem.pooled(), list(problem.train.parts)
    training = TrainingSettings(**LITERAL | {"epochs": 2, "learning_rate": 0.1, "joint": "fm", "value_bits": 64})
    joint, pooled = (
        Plan(training, dict.fromkeys(each.train.parts, LR), each.label_party, each.loss, 2) for each in (problem, whole)
    )
    start = {name: joint.model(name, width(problem.train.parts[name])).state() for name in names}
    first = dict(pooled.model("pooled", width(whole.train.parts["pooled"])).state())
    own, other = (start[name]["theta"] for name in names)
    weights = numbers * width(problem.train.parts[names[0]])
    first["theta"] = np.concatenate([own[:weights], other, own[weights:]])
    one = train_in_process(joint, problem.train, start=start, in_turns=True).score(problem.test.parts)
    all_here = train_in_process(pooled, whole.train, start={"pooled": first}, in_turns=True).score(whole.test.parts)
    assert np.abs(one).max() > 3.0
    np.testing.assert_allclose(one, all_here, rtol=0, atol=1e-4)


def test_pooled_sgd_is_sgd_as_anyone_would_write_it(a9a_of):
    """The pooled side of the equation is checked against plain numpy, not against the same kernels."""
    problem = a9a_of(2).pooled()
    outcome = train_on(problem, LR, epochs=1, **LITERAL)
    plan_schedule = outcome.coordinator.schedule
    X, y = to_dense(problem.train.parts["pooled"]).astype(float), problem.train.labels
    w, b = np.zeros(X.shape[1]), 0.0
    for step in range(plan_schedule.steps):
        visit = plan_schedule.visit(step)
        batch = visit.start + plan_schedule.order(visit, 0)
        rate = 0.5 * (1 - step / plan_schedule.updates)
        error = 1 / (1 + np.exp(-(X[batch] @ w + b))) - y[batch]
        w, b = w * (1 - rate * 3e-4) - rate * X[batch].T @ error / len(batch), b - rate * error.mean()
    np.testing.assert_allclose(outcome.models["pooled"].parameters, [*w, b], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("fm", "mlp"))])
def test_two_runs_with_the_same_seed_are_bit_identical(a9a_of, kind):
    model = model_settings(kind)
    first, second = (train_on(a9a_of(3), model, epochs=2, lookahead=2) for _ in range(2))
    for name in first.models:
        assert first.models[name].state()["theta"].tobytes() == second.models[name].state()["theta"].tobytes()
    for column in range(3):
        assert np.array_equal(first.coordinator.matrix.column(column), second.coordinator.matrix.column(column))


def test_another_seed_gives_another_run(a9a_of):
    first, second = (train_on(a9a_of(2), LR, epochs=1, seed=seed) for seed in (1, 2))
    assert not np.array_equal(first.models["p0"].parameters, second.models["p0"].parameters)


def auc(problem, model, epochs=8, **training):
    outcome = train_on(problem, model, **{"epochs": epochs, "batch_size": 100, "learning_rate": 0.5, **training})
    return metric("binary", outcome.score(problem.test.parts), problem.test)


@pytest.fixture(scope="module")
def batch_by_batch(a9a_of):
    """AUC of one batch per block, by model and number of parties; trained when first asked for."""
    known = {}

    def ask(model, parties):
        key = (model.kind, parties)
        if key not in known:
            known[key] = auc(a9a_of(parties), model, **LITERAL)
        return known[key]

    return ask


def model_for(kind, parties):
    return LR if kind == "linear" else model_settings("mlp", optimizer="sgd", l2=1e-3, hidden=(128 // parties,))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize(
    ("parties", "batches", "lookahead"), [(2, 64, 1), (4, 64, 1), (8, 16, 1), (2, "all", 0), (2, "all", 1)]
)
def test_with_echo_large_blocks_lose_nothing(a9a_of, batch_by_batch, kind, parties, batches, lookahead):
    model = model_for(kind, parties)
    reached = auc(a9a_of(parties), model, batches_per_block=batches, lookahead=lookahead)
    assert reached >= batch_by_batch(model, parties) - 0.0005


@pytest.mark.slow
def test_without_echo_four_neural_parties_diverge(a9a_of):
    with pytest.raises(TrainingDiverged, match="raise echo"):
        auc(a9a_of(4), model_for("mlp", 4), epochs=12, batches_per_block=64, lookahead=1, echo=1.0)


@pytest.mark.slow
def test_without_echo_four_linear_parties_overshoot(a9a_of, batch_by_batch):
    reached = auc(a9a_of(4), LR, batches_per_block=64, lookahead=1, echo=1.0)
    assert reached < batch_by_batch(LR, 4) - 0.005


@pytest.mark.parametrize("staleness", [1, 4])
def test_the_true_lag_of_every_total_is_recorded_and_stale_parts_come_from_the_epoch_before(a9a_of, staleness):
    problem = a9a_of(2)
    outcome = train_on(problem, LR, epochs=3, staleness=staleness, batches_per_block=16, lookahead=0)
    steps, blocks = outcome.coordinator.schedule.steps, outcome.coordinator.schedule.blocks
    for lags in outcome.lags.values():
        assert len(lags) == steps
        assert all(0 <= lag <= 2 * blocks for lag in lags)
    assert metric("binary", outcome.score(problem.test.parts), problem.test) > 0.895


def test_at_staleness_0_no_total_is_ever_stale(a9a_of):
    outcome = train_on(a9a_of(3), LR, epochs=2, lookahead=3)
    assert {lag for lags in outcome.lags.values() for lag in lags} == {0}


def test_several_passes_per_exchange_train_with_a_handful_of_exchanges(a9a_of):
    problem = a9a_of(2)
    outcome = train_on(problem, LR, epochs=5, passes=4, batches_per_block="all", lookahead=0)
    assert outcome.coordinator.schedule.steps == 5
    assert metric("binary", outcome.score(problem.test.parts), problem.test) > 0.902
