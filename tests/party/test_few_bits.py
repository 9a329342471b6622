"""Whole trainings in which differences of few bits travel: what they end with, and that a restart changes nothing."""

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import SettingsError
from fdml.experiments.in_memory import run_of
from fdml.experiments.in_process import train_in_process
from fdml.models.metrics import auc
from fdml.models.registry import model_settings
from fdml.party.plan import Plan, build_worker
from fdml.privacy.build_guard import guard_for, seeded_key
from fdml.protocol.few_bits import few_bits_of
from fdml.protocol.fixed_point import grid_of
from fdml.protocol.messages import HeldOutPredictions, Push
from fdml.server.coordinator import Coordinator
from fdml.settings import GuardSettings, PrivacySettings, TrainingSettings
from tests.party.workers import bits as bits_of
from tests.party.workers import through_a_file

ROWS = 600
BLIND, PRIVATE = PrivacySettings(server="blind"), PrivacySettings(labels="private", label_epsilon="off")


def rows_of(parties=2, classes=2, rows=ROWS, seed=3):
    random = np.random.default_rng(seed)
    parts = [random.normal(size=(rows, 4)) for _ in range(parties)]
    truth = np.random.default_rng(9).normal(size=(4 * parties, classes))
    scores = np.hstack(parts) @ truth + random.gumbel(size=(rows, classes))
    names = [f"p{number}" for number in range(parties)]
    features = {name: as_rows(part.astype(np.float32)) for name, part in zip(names, parts, strict=True)}
    return RowSet(features, scores.argmax(axis=1).astype(np.float64), np.ones(rows))


def plan_of(rows, bits, *, kind="linear", classes=2, guards=None, **training):
    chosen = {"epochs": 6, "batch_size": 20, "batches_per_block": 4, "learning_rate": 0.5, "lookahead": 1} | training
    loss = "logistic" if classes == 2 else "softmax"
    settings = TrainingSettings(value_bits=bits, **chosen)
    return Plan(settings, dict.fromkeys(rows.parts, model_settings(kind)), "p0", loss, classes, guards=guards or {})


def trained(rows, bits, privacy=None, **options):
    return train_in_process(plan_of(rows, bits, **options), rows, privacy=privacy, in_turns=True)


def bytes_of(result):
    return {name: {key: each.tobytes() for key, each in model.state().items()} for name, model in result.models.items()}


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("parties", [2, 3])
def test_few_bits_learn_what_64_learn(bits, parties):
    rows, fresh = rows_of(parties), rows_of(parties, seed=4)
    exact, few = (trained(rows, each).score(fresh.parts)[:, 0] for each in (64, bits))
    weights = np.ones(len(fresh))
    assert auc(fresh.labels, exact, weights) > 0.8
    assert abs(auc(fresh.labels, exact, weights) - auc(fresh.labels, few, weights)) < (0.002 if bits > 2 else 0.006)
    assert np.corrcoef(exact, few)[0, 1] > 0.995


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kind": "mlp"},
        {"classes": 3},
        {"passes": 2, "lookahead": 0},
        {"batches_per_block": "all", "lookahead": 2},
        {"max_prediction": 2.0},
        {"echo": 1.0, "learning_rate": 0.1},
    ],
)
def test_a_blind_server_changes_no_bit(options):
    rows = rows_of(3, options.get("classes", 2))
    assert bytes_of(trained(rows, 4, BLIND, **options)) == bytes_of(trained(rows, 4, **options))


@pytest.mark.parametrize(
    ("privacy", "options"),
    [
        (None, {"staleness": 3}),
        (None, {"staleness": 3, "classes": 3}),
        (PRIVATE, {}),
        (PRIVATE, {"staleness": 2, "classes": 3}),
    ],
)
def test_parties_with_different_totals_learn_too(privacy, options):
    rows = rows_of(3, options.get("classes", 2))
    exact, few = (trained(rows, bits, privacy, **options).score(rows.parts) for bits in (64, 4))
    assert np.corrcoef(exact.ravel(), few.ravel())[0, 1] > 0.99


def test_few_exchanges_may_be_of_few_bits():
    rows = rows_of()
    options = {"epochs": 12, "exchanges": 4}
    chosen = [
        Plan(
            TrainingSettings(value_bits=bits, batch_size=20, learning_rate=0.5, **options),
            dict.fromkeys(rows.parts, model_settings()),
            "p0",
            "logistic",
            2,
        )
        for bits in (64, 4)
    ]
    exact, few = (train_in_process(plan, rows, in_turns=True).score(rows.parts)[:, 0] for plan in chosen)
    assert np.corrcoef(exact, few)[0, 1] > 0.99


def test_predictions_of_held_out_rows_have_16_bits():
    rows, seen = rows_of(), []
    plan = plan_of(rows, 2, epochs=2)
    train_in_process(plan, rows, held_out=rows_of(seed=5), in_turns=True, tap=lambda _, message: seen.append(message))
    held_out = [message.release for message in seen if isinstance(message, HeldOutPredictions)]
    assert {(release.bits, release.values.dtype.itemsize) for release in held_out} == {(0, 2)}
    assert {message.release.bits for message in seen if isinstance(message, Push)} == {0, 2}


def test_noise_is_refused_with_what_to_write():
    guard = GuardSettings(clip=2.0, noise="gaussian", sigma=4.0)
    with pytest.raises(SettingsError, match=r"about sigma 4 .* 4 bits cannot tell; set training.value_bits = 16"):
        trained(rows_of(), 4, guards={"p1": guard})


def test_a_clip_without_noise_holds_for_what_the_server_has():
    rows, clip = rows_of(), 0.25
    plan = plan_of(rows, 4, guards={"p1": GuardSettings(clip=clip)})
    column = train_in_process(plan, rows, in_turns=True).coordinator.matrix.column(1)
    assert 0.2 * 512 < np.abs(column.astype(np.int64)).max() <= clip * 512


@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("lookahead", [0, 1, 4])
def test_a_worker_restored_at_any_step_goes_on_bit_by_bit(bits, lookahead):
    """Every party's state goes through a file after every step; blocks are three, so lookahead may pass an epoch."""
    rows = rows_of()
    plan = plan_of(rows, bits, epochs=3, lookahead=lookahead, batches_per_block=10)
    calm, restored = (in_turns(rows, plan, through=through) for through in (False, True))
    assert calm == restored


def in_turns(rows, plan, *, through):
    """Every party's bits after training; `through` saves and restores each of them after every step."""
    run, schedule = run_of(plan), plan.schedule(len(rows))
    few, grid = few_bits_of(run), grid_of(run.training.value_bits)

    def new(name):
        key = seeded_key(7, name)
        guard = guard_for(GuardSettings(), schedule, key, grid=grid, parties=len(run.parties), few_bits=few)
        return build_worker(plan, rows, name, guard)

    workers = {name: new(name) for name in rows.parts}
    server = Coordinator(run.parties, schedule, 1, 0, grid=grid, few_bits=few)
    todo = [(name, message) for name, worker in workers.items() for message in worker.first_messages()]
    while todo:
        name, message = todo.pop(0)
        for reply in server.handle(name, message):
            if through:
                again = new(reply.to)
                again.restore(through_a_file(workers[reply.to].state()))
                workers[reply.to] = again
            todo += [(reply.to, sent) for sent in workers[reply.to].learn(reply.message)]
    assert all(worker.finished for worker in workers.values())
    return {name: bits_of(worker) for name, worker in workers.items()}
