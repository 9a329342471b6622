"""Whole runs under every joint function, with everything else that a run may be set to."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import SettingsError
from fdml.experiments.in_process import train_in_process
from fdml.models.joint_model import joint_state
from fdml.models.learner import LocalLearner
from fdml.models.metrics import auc
from fdml.models.objective import objective_for
from fdml.models.registry import model_settings
from fdml.party.loop import Worker
from fdml.party.plan import Plan
from fdml.party.record_level import check_record_level
from fdml.protocol.schedule import schedule_for
from fdml.settings import (
    GradientGuardSettings,
    GuardSettings,
    PrivacySettings,
    RunSettings,
    TrainingSettings,
)
from fdml.settings.data import DataSettings
from fdml.settings.joint import JointSettings
from tests.models.random_updates import build, stored
from tests.party.workers import KINDS, ROWS, ServerCopy, X, Y, bits, finish, task_of, through_a_file
from tests.privacy.guards import no_protection

PARTIES = ("ann", "bob", "cid")
JOINTS = ("sum", "fm", "head")
SMALL = {"epochs": 3, "batch_size": 20, "batches_per_block": 2, "joint_width": 3}


def rows_of(count=240, classes=2, seed=1):
    """Three parties; the label depends on a product of two parties' columns."""
    random = np.random.default_rng(seed)
    parts = {name: random.normal(size=(count, 3)).astype(np.float32) for name in PARTIES}
    score = 2 * parts["ann"][:, 0] * parts["bob"][:, 0] + parts["cid"][:, 1]
    labels = np.digitize(score, [0.0] if classes == 2 else [-1.0, 1.0]).astype(np.float64)
    return RowSet({name: as_rows(part) for name, part in parts.items()}, labels, np.ones(count))


def plan_of(joint, kind="mlp", classes=2, guards=None, **training):
    chosen = SMALL | {"joint": joint} | training
    for name in (["joint_width"] if joint == "sum" else []) + (
        ["batches_per_block"] if "exchanges" in training else []
    ):
        chosen.pop(name)
    small = {"hidden": (6,)} if kind == "mlp" else {}
    models = {name: model_settings(kind, **small) for name in PARTIES}
    loss = "logistic" if classes == 2 else "softmax"
    return Plan(TrainingSettings(**chosen), models, "ann", loss, classes, guards=guards or {})


def heads_of(outcome):
    return [joint_state(model.state()) for model in outcome.models.values()]


def assert_same_heads(outcome):
    first, *others = heads_of(outcome)
    assert first
    for other in others:
        assert {name: array.tobytes() for name, array in first.items()} == {
            name: array.tobytes() for name, array in other.items()
        }


NOISY = {"noise": "gaussian", "sigma": 0.5, "clip": 2.0, "evaluation": "exact"}
SETTINGS = {
    "as they are": {},
    "one batch, no lookahead": {"batches_per_block": 1, "lookahead": 0},
    "lookahead 3 and two passes": {"lookahead": 3, "passes": 2},
    "one exchange an epoch": {"batches_per_block": "all"},
    "two exchanges": {"exchanges": 2, "epochs": 6},
    "few bits": {"value_bits": 4},
    "16 bits": {"value_bits": 16},
    "echo 1": {"echo": 1.0},
}


@pytest.mark.parametrize("blind", [False, True], ids=["plain", "blind"])
@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.parametrize("joint", ["fm", "head"])
def test_a_run_ends_with_models_that_score_as_it_has_evaluated(joint, how, blind):
    plan = plan_of(joint, **SETTINGS[how])
    rows, held_out = rows_of(), rows_of(80, seed=2)
    privacy = PrivacySettings(server="blind") if blind else None
    outcome = train_in_process(plan, rows, held_out=held_out, in_turns=True, privacy=privacy)
    last = outcome.evaluations[max(outcome.evaluations)]
    found = auc(held_out.labels, outcome.score(held_out.parts)[:, 0], held_out.weights)
    assert last.test_metric == pytest.approx(found, abs=0.02)
    if joint == "head":
        assert_same_heads(outcome)


@pytest.mark.parametrize("kind", ["linear", "fm", "mlp"])
@pytest.mark.parametrize("joint", ["fm", "head"])
def test_three_classes_have_vectors_of_their_own(joint, kind):
    held_out = rows_of(80, 3, seed=2)
    outcome = train_in_process(plan_of(joint, kind, classes=3), rows_of(classes=3), held_out=held_out, in_turns=True)
    assert outcome.score(held_out.parts).shape == (80, 3)
    width = {"fm": 12, "head": 6}[joint]
    assert outcome.models["ann"].predict(held_out.parts["ann"]).shape == (80, width)


@pytest.mark.parametrize("joint", ["fm", "head"])
def test_noise_on_the_vectors_is_counted_and_heads_stay_the_same(joint):
    guards = {"bob": GuardSettings(**NOISY)}
    outcome = train_in_process(plan_of(joint, guards=guards), rows_of(), in_turns=True)
    assert outcome.ledgers["bob"].state()["releases"]
    if joint == "head":
        assert_same_heads(outcome)


def test_vectors_of_staleness_are_learned_from():
    outcome = train_in_process(plan_of("fm", staleness=2), rows_of(), in_turns=True)
    assert np.isfinite(outcome.score(rows_of().parts)).all()


@pytest.mark.slow
def test_noise_in_training_goes_with_products_of_vectors():
    noise = GuardSettings(training=GradientGuardSettings(clip=1.0, sigma=0.5))
    plan = plan_of("fm", guards={"bob": noise}, learning_rate=0.1)
    assert np.isfinite(train_in_process(plan, rows_of(), in_turns=True).score(rows_of().parts)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("joint", "least", "most"), [("sum", 0.0, 0.82), ("fm", 0.9, 1.0), ("head", 0.85, 1.0)])
def test_what_two_parties_features_mean_together_is_learned_by_vectors_alone(joint, least, most):
    plan = plan_of(joint, epochs=60, learning_rate=0.01)
    held_out = rows_of(500, seed=2)
    score = train_in_process(plan, rows_of(1000), in_turns=True).score(held_out.parts)
    assert least <= auc(held_out.labels, score[:, 0], held_out.weights) <= most


def test_linear_parties_under_fm_are_a_factorization_machine_over_all_features():
    """Promise 2: batch by batch, joint training is that of the pooled machine."""
    chosen = {"batches_per_block": 1, "lookahead": 0, "value_bits": 64, "learning_rate": 0.2, "epochs": 10}
    model = model_settings("linear", optimizer="sgd", l2=1e-3)
    training = TrainingSettings(**(SMALL | {"joint": "fm"} | chosen))
    rows = rows_of()
    joint = Plan(training, dict.fromkeys(PARTIES, model), "ann", "logistic", 2)
    start = {name: joint.model(name, 3).state() for name in PARTIES}
    pooled_rows = rows.pooled("pooled")
    pooled = Plan(training, {"pooled": model}, "pooled", "logistic", 2)
    first = dict(pooled.model("pooled", 9).state())
    thetas = [state["theta"] for state in start.values()]
    first["theta"] = np.concatenate([thetas[0][:12], thetas[1], thetas[2], thetas[0][12:]])
    one = train_in_process(joint, rows, start=start, in_turns=True).score(rows.parts)
    other = train_in_process(pooled, pooled_rows, start={"pooled": first}, in_turns=True).score(pooled_rows.parts)
    assert np.abs(one).max() > 1.0
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)


def worker_under(joint, kind, *, lookahead=1, passes=2):
    schedule = schedule_for(ROWS, 2, 2, passes, 2, 7)
    settings = JointSettings(joint=joint, joint_width=2, head_units=3)
    objective = objective_for("logistic", 2, settings)
    task = replace(task_of(schedule, lookahead), labels=Y, weights=np.ones(ROWS), objective=objective, watch_loss=True)
    model = build(KINDS[kind], 4, 1, key=(7, "model", "store"), joint=objective.joint)
    return Worker(LocalLearner(model, stored(X, "dense")), task, no_protection())


class WideServer(ServerCopy):
    """As a server has it, where a prediction has several floats."""

    def total(self, step):
        found = super().total(step)
        return replace(found, values=found.values % 2**31)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("joint", ["fm", "head"])
def test_a_worker_restored_at_any_step_goes_on_bit_by_bit(joint, kind):
    worker, server = worker_under(joint, kind), WideServer()
    server.take(worker.first_messages())
    states = [through_a_file(worker.state())]
    while not worker.finished:
        server.take(worker.learn(server.total(worker.step)))
        states.append(through_a_file(worker.state()))
    assert ("model/joint/theta" in states[0]) == (joint == "head")
    for state in states:
        again = worker_under(joint, kind)
        again.restore(state)
        server.take(again.first_messages())
        assert bits(finish(again, server)) == bits(worker)


@pytest.mark.parametrize("joint", ["fm", "head"])
def test_stopping_early_keeps_the_model_and_the_head_of_the_best_epoch(joint):
    held_out = rows_of(80, seed=2)
    plan = plan_of(joint, epochs=8, learning_rate=0.2)
    outcome = train_in_process(plan, rows_of(60), held_out=held_out, in_turns=True, stop_after=2)
    best = outcome.evaluations[outcome.best_epoch]
    found = auc(held_out.labels, outcome.score(held_out.parts)[:, 0], held_out.weights)
    assert best.test_metric == pytest.approx(found, abs=0.01)


def run_with(privacy=None, **training):
    return RunSettings(parties=PARTIES, label_party="ann", training=training, privacy=privacy or {})


@pytest.mark.parametrize("joint", ["fm", "head"])
def test_private_labels_are_refused_with_what_to_write(joint):
    with pytest.raises(SettingsError, match=rf'"{joint}" needs the labels .* set labels = "shared", or training.joint'):
        run_with({"labels": "private"}, joint=joint)


def test_a_head_and_staleness_are_refused_with_what_to_write():
    with pytest.raises(SettingsError, match=r"staleness = 3 gives each its own; set staleness = 0"):
        run_with(joint="head", staleness=3)
    assert run_with(joint="fm", staleness=3).training.vector == 8


def test_a_width_without_a_vector_is_refused():
    with pytest.raises(SettingsError, match=r"joint_width is 4, and a sum has no vector"):
        run_with(joint_width=4)


def test_a_head_and_noise_in_training_are_refused_with_what_to_write():
    guard = GuardSettings(training=GradientGuardSettings(clip=1.0, sigma=1.0))
    training = TrainingSettings(joint="head", learning_rate=0.1)
    with pytest.raises(SettingsError, match=r'set training.joint = "fm"'):
        check_record_level(guard, training, model_settings("mlp"), DataSettings(path="data.csv"))


@pytest.mark.parametrize(("joint", "numbers"), [("sum", 0), ("fm", 8), ("head", 16)])
def test_the_width_of_a_vector_has_a_default_by_joint_function(joint, numbers):
    assert TrainingSettings(joint=joint).vector == numbers
