from dataclasses import replace

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.models.calibration import IDENTITY
from fdml.models.registry import model_settings
from fdml.party.few_exchanges import Estimate
from fdml.party.plan import Plan, build_worker, joint_score, recalibrated, training_task
from fdml.privacy.guard import NO_NOISE
from fdml.privacy.ledger import Ledger, Mechanism
from fdml.settings import GradientGuardSettings, GuardSettings, TrainingSettings
from tests.party.workers import ServerCopy, finish
from tests.privacy.guards import no_protection

ROWS = 12
X = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)
SAMPLE = RowSet({"p": as_rows(X[:, :2]), "q": as_rows(X[:, 2:])}, np.arange(ROWS) % 2.0, np.ones(ROWS))


def plan_of(models=None, *, parties=None, classes=2, loss="logistic", **training):
    models = models or dict.fromkeys("pq", model_settings())
    return Plan(TrainingSettings(batch_size=2, **training), models, "p", loss, classes, parties)


def with_weights(plan, party, *weights):
    """The state of a party's model with these parameters."""
    return {**plan.model(party, 2).state(), "theta": np.array(weights, np.float32)}


def test_echo_is_the_number_of_parties_unless_set():
    assert plan_of().echo == 2.0
    assert plan_of({"p": model_settings()}, parties=5).echo == 5.0, "of the run, not of those that train here"
    assert plan_of(echo=0.5).echo == 0.5


def test_a_party_without_guard_settings_protects_nothing():
    guard = GuardSettings(clip=1.0)
    plan = Plan(TrainingSettings(), dict.fromkeys("pq", model_settings()), "p", "logistic", 2, guards={"q": guard})
    assert (plan.guard("p"), plan.guard("q")) == (GuardSettings(), guard)


def test_only_the_label_party_has_a_bias():
    plan = plan_of()
    assert {party: plan.model(party, 2).state()["theta"].size for party in "pq"} == {"p": 3, "q": 2}


def test_where_parties_begin_alone_each_has_a_bias():
    plan = plan_of(exchanges=1, epochs=3)
    assert {party: plan.model(party, 2).state()["theta"].size for party in "pq"} == {"p": 3, "q": 3}


def test_a_models_start_follows_from_seed_and_party_alone():
    models = dict.fromkeys("pq", model_settings("mlp", hidden=(3,)))

    def start(party, **training):
        return plan_of(models, **training).model(party, 2).state()["theta"].tobytes()

    assert start("q") == start("q", epochs=9)
    assert len({start("q"), start("q", seed=8), start("p")}) == 3


def test_a_model_goes_on_from_the_state_it_is_given():
    state = {name: array + 1 for name, array in plan_of().model("q", 2).state().items()}
    np.testing.assert_equal(plan_of().model("q", 2, state=state).state(), state)


def test_the_joint_score_is_the_score_of_the_sum():
    plan = plan_of()
    states = {"p": with_weights(plan, "p", 1, 2, 3), "q": with_weights(plan, "q", 1, 2)}
    models = {party: plan.model(party, 2, state=state) for party, state in states.items()}
    expected = X[:, :2] @ [1, 2] + 3 + X[:, 2:] @ [1, 2]
    found = joint_score(models, SAMPLE.parts, plan.objective)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-5)


# A party's task


def test_a_task_has_the_runs_schedule_and_the_partys_own_rate():
    models = {"p": model_settings(learning_rate=0.25), "q": model_settings()}
    plan = plan_of(models, learning_rate=0.5, epochs=3, lookahead=2, staleness=4)
    own, runs = (training_task(plan, SAMPLE, party) for party in "pq")
    assert (own.rate.of(0, 1)[0], runs.rate.of(0, 1)[0]) == (0.25, 0.5)
    assert own.schedule == plan.schedule(ROWS)
    assert (own.lookahead, own.staleness, own.echo, own.denoise) == (2, 4, 2.0, None)


def test_few_exchanges_look_not_ahead_and_denoise():
    task = training_task(plan_of(exchanges=2, epochs=5), SAMPLE, "q")
    assert task.lookahead == 0
    others = np.random.default_rng(1).normal(size=(ROWS, 1))
    np.testing.assert_array_equal(task.denoise(others, 0.0).values, others)
    assert not np.array_equal(task.denoise(others, 1.0).values, others)


@pytest.mark.parametrize(
    ("party", "gradient_party", "expected"), [("p", None, False), ("p", "p", False), ("q", "p", True)]
)
def test_a_party_learns_from_gradients_where_another_keeps_the_labels(party, gradient_party, expected):
    task = training_task(plan_of(), SAMPLE, party, gradient_party=gradient_party)
    assert task.learns_from_gradients == expected


def test_auto_rates_are_smaller_for_longer_rows():
    plan = replace(plan_of(learning_rate="auto"), models=dict.fromkeys("pq", model_settings(optimizer="sgd")))
    longer = RowSet({"q": as_rows(10 * X[:, 2:])}, SAMPLE.labels, SAMPLE.weights)
    first, second = (training_task(plan, sample, "q").rate.of(0, 1)[0] for sample in (SAMPLE, longer))
    assert second < first


# A worker


def test_a_worker_begins_with_the_parameters_it_is_given():
    plan = plan_of()
    start = with_weights(plan, "q", 1.0, 2.0)
    worker = build_worker(plan, SAMPLE, "q", no_protection(), start=start)
    np.testing.assert_array_equal(worker.parameters()["theta"], start["theta"])
    fresh = build_worker(plan, SAMPLE, "q", no_protection())
    assert not np.array_equal(fresh.parameters()["theta"], start["theta"])


def test_the_number_of_threads_changes_no_bit():
    states = []
    for threads in (1, 3):
        worker = build_worker(plan_of(epochs=2), SAMPLE, "q", no_protection(), threads=threads)
        server = ServerCopy()
        server.take(worker.first_messages())
        states.append(finish(worker, server).parameters()["theta"].tobytes())
    assert states[0] == states[1]


def test_a_worker_predicts_the_held_out_rows_it_is_given():
    start = with_weights(plan_of(), "q", 1.0, -1.0)
    worker = build_worker(plan_of(), SAMPLE, "q", no_protection(), held_out=as_rows(X[:3, 2:]), start=start)
    np.testing.assert_allclose(worker.predict_held_out()[:, 0], X[:3, 2] - X[:3, 3], atol=1e-6)


class Estimating:
    """A worker of which only the estimate and the noise are asked."""

    def __init__(self, estimate, mechanism=NO_NOISE):
        self._estimate = estimate
        self.ledger = Ledger(mechanism, None, 1e-5, None)

    def estimate(self):
        return self._estimate


def test_scores_are_recalibrated_only_where_exchanges_were_few_and_without_noise():
    random = np.random.default_rng(0)
    logit = random.normal(size=(4000, 1))
    labels = (random.random(4000) < 1 / (1 + np.exp(-logit[:, 0]))).astype(float)
    sample = RowSet({}, labels, np.ones(4000))
    found = recalibrated(Estimating(Estimate(3 * logit, 0.0)), "logistic", sample)
    assert found.scale == pytest.approx(1 / 3, rel=0.2)
    assert recalibrated(Estimating(None), "logistic", sample) is IDENTITY
    assert recalibrated(Estimating(Estimate(3 * logit, 0.1)), "logistic", sample) is IDENTITY
    own_noise = Mechanism("gaussian", 3.0, 1.0)
    assert recalibrated(Estimating(Estimate(3 * logit, 0.0), own_noise), "logistic", sample) is IDENTITY, "finding 7"


def wide(party_guard=None):
    guards = {} if party_guard is None else {"q": party_guard}
    return Plan(TrainingSettings(), {"q": model_settings("linear")}, "q", "logistic", 2, guards=guards)


def test_the_penalty_follows_from_the_features_of_the_rows_that_are_trained_on():
    rows = {"q": as_rows(np.ones((10, 20)))}
    found = wide().resolved(10, rows)
    assert found.models["q"].weight_decay == pytest.approx(4 / 10)
    assert found.resolved(10, {"q": as_rows(np.zeros((10, 20)))}) == found, "a resolved plan stays as it is"


def test_no_penalty_follows_from_features_that_noise_in_training_hides():
    rows = {"q": as_rows(np.ones((10, 20)))}
    guard = GuardSettings(training=GradientGuardSettings(clip=1.0, sigma=1.0))
    assert wide(guard).resolved(10, rows).models["q"].weight_decay == 1 / 10
    assert wide().resolved(10, rows, private=("q",)).models["q"].weight_decay == 1 / 10
