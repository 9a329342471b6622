"""Trainings in which drawn parties are left out of steps, so that the others learn to do without them."""

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import SettingsError
from fdml.experiments.in_process import train_in_process
from fdml.models.metrics import auc
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.protocol.absences import absences_of
from fdml.protocol.messages import Push
from fdml.settings import GradientGuardSettings, GuardSettings, TrainingSettings
from tests.party.test_few_bits import BLIND, PRIVATE, bytes_of, in_turns, plan_of, rows_of, trained

ABSENCE = {"absence": 0.5}


def draws(plan, rows):
    """Of every step the party that is left out."""
    schedule = plan.schedule(len(rows))
    absences = absences_of(schedule, tuple(plan.models), plan.label_party)
    return [absences.at(step) for step in range(schedule.steps)]


def pushes_of(plan, rows, **options):
    seen = []
    result = train_in_process(plan, rows, in_turns=True, tap=lambda *sent: seen.append(sent), **options)
    return {(party, each.step): each.release for party, each in seen if isinstance(each, Push)}, result


def test_the_drawn_party_pushes_zeros_and_nobody_else_does():
    rows = rows_of(3)
    plan = plan_of(rows, 64, **ABSENCE)
    pushes, _ = pushes_of(plan, rows)
    drawn = draws(plan, rows)
    assert {"p1", "p2", None} == set(drawn)
    for (party, step), release in pushes.items():
        if step > 1:  # before its first update a linear model predicts zeros
            assert release.values.any() == (drawn[step] != party), (party, step)


def test_a_release_that_was_left_out_is_not_counted_and_has_no_noise():
    rows = rows_of(3)
    guard = GuardSettings(clip=1.0, noise="gaussian", sigma=1.0)
    plan = plan_of(rows, 64, guards={"p1": guard}, epochs=4, **ABSENCE)
    pushes, result = pushes_of(plan, rows)
    drawn, blocks = draws(plan, rows), plan.schedule(len(rows)).blocks
    visits = [plan.schedule(len(rows)).visit(step).block for step in range(len(drawn))]
    released = [
        sum(drawn[step] != "p1" and visits[step] == block for step in range(len(drawn))) for block in range(blocks)
    ]
    counts = result.ledgers["p1"].state()["releases"]
    assert {int(name.split()[-1]): times for name, times in counts.items()} == dict(enumerate(released))
    for step, party in enumerate(drawn):
        assert (pushes["p1", step].variance == 0.0) == (party == "p1")
        assert pushes["p1", step].values.any() == (party != "p1")


def test_noisy_gradients_of_a_step_without_the_party_are_not_taken():
    rows = rows_of(2)
    guard = GuardSettings(training=GradientGuardSettings(clip=1.0, sigma=1.0))
    plan = plan_of(rows, 64, guards={"p1": guard}, epochs=4, **ABSENCE)
    _, result = pushes_of(plan, rows)
    drawn = draws(plan, rows)
    assert sum(result.ledgers["p1"].state()["uses"].values()) == sum(party != "p1" for party in drawn)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [64, 32, 16, 8, 4, 2])
@pytest.mark.parametrize("options", [{}, {"passes": 2, "lookahead": 0}, {"classes": 3}, {"lookahead": 3}])
def test_a_blind_server_changes_no_bit(bits, options):
    rows = rows_of(3, options.get("classes", 2))
    chosen = {**ABSENCE, **options}
    assert bytes_of(trained(rows, bits, BLIND, **chosen)) == bytes_of(trained(rows, bits, **chosen))


def test_the_models_are_others_than_without_absence():
    rows = rows_of(3)
    assert bytes_of(trained(rows, 64, **ABSENCE)) != bytes_of(trained(rows, 64))
    assert bytes_of(trained(rows, 64, absence=0.0)) == bytes_of(trained(rows, 64))


@pytest.mark.parametrize(
    ("bits", "privacy", "options"),
    [
        (8, None, {}),
        (4, None, {}),
        (4, BLIND, {}),
        (4, None, {"staleness": 3}),
        (64, None, {"staleness": 3}),
        (64, BLIND, {"staleness": 2}),
        (64, PRIVATE, {}),
        (4, PRIVATE, {"staleness": 2}),
    ],
)
def test_it_learns_what_a_run_of_64_bits_in_step_learns(bits, privacy, options):
    rows = rows_of(3)
    exact = trained(rows, 64, **ABSENCE, learning_rate=0.2).score(rows.parts)
    found = trained(rows, bits, privacy, **ABSENCE, learning_rate=0.2, **options).score(rows.parts)
    assert np.corrcoef(exact.ravel(), found.ravel())[0, 1] > 0.97


def test_a_party_that_can_be_left_out_is_missed_less():
    """The other holds exactly what the first holds with noise: only without it has the first a use for its own."""
    random = np.random.default_rng(2)
    wanted, other = random.normal(size=(2, 2000))
    mine = np.column_stack([wanted + other, other + 0.3 * random.normal(size=2000)])
    parts = {"p0": as_rows(mine.astype(np.float32)), "p1": as_rows(other[:, None].astype(np.float32))}
    rows = RowSet(parts, (wanted > 0).astype(np.float64), np.ones(2000))
    alone = {}
    for chance in (0.0, 0.4):
        model = trained(rows, 64, absence=chance, epochs=12, learning_rate=0.1).models["p0"]
        alone[chance] = auc(rows.labels, model.predict(parts["p0"])[:, 0], rows.weights)
    assert alone[0.4] > alone[0.0] + 0.02


@pytest.mark.parametrize("bits", [64, 4])
@pytest.mark.parametrize("lookahead", [0, 1, 4])
def test_a_worker_restored_at_any_step_goes_on_bit_by_bit(bits, lookahead):
    rows = rows_of(3)
    plan = plan_of(rows, bits, epochs=4, lookahead=lookahead, batches_per_block=10, **ABSENCE)
    calm, restored = (in_turns(rows, plan, through=through) for through in (False, True))
    assert calm == restored


def test_few_exchanges_leave_nobody_out():
    with pytest.raises(SettingsError, match=r"absence = 0.2 leaves a party out of some blocks, and training.exchanges"):
        TrainingSettings(absence=0.2, exchanges=3, epochs=9)


@pytest.mark.parametrize("chance", [1.0, -0.1, 2])
def test_a_chance_that_is_none_is_refused(chance):
    with pytest.raises(SettingsError, match="absence"):
        TrainingSettings(absence=chance)


def test_a_party_alone_trains_as_ever():
    rows = rows_of(1)
    models = [
        train_in_process(
            Plan(TrainingSettings(epochs=2, absence=chance), {"p0": model_settings()}, "p0", "logistic", 2), rows
        )
        for chance in (0.0, 0.5)
    ]
    assert bytes_of(models[0]) == bytes_of(models[1])


@pytest.mark.parametrize("joint", ["fm", "head"])
def test_parties_whose_features_interact_can_be_left_out_too(joint):
    rows = rows_of(3)
    options = {"joint": joint, "joint_width": 2, **ABSENCE, "learning_rate": 0.05}
    assert bytes_of(trained(rows, 64, BLIND, **options)) == bytes_of(trained(rows, 64, **options))
    found = trained(rows, 64, **options).score(rows.parts)[:, 0]
    assert auc(rows.labels, found, rows.weights) > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("through", [False, True])
def test_a_party_of_trees_can_be_left_out(through):
    """It learns once it has the totals of all rows; those of a block without it are not among them."""
    pytest.importorskip("lightgbm")
    rows = rows_of(3)
    options = {"kind": "trees", "learning_rate": 0.3, "epochs": 4, **ABSENCE}
    first, again = (trained(rows, 64, BLIND if blind else None, **options) for blind in (False, through))
    assert bytes_of(first) == bytes_of(again)
    assert auc(rows.labels, first.score(rows.parts)[:, 0], rows.weights) > 0.75
