import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import SettingsError
from fdml.experiments.in_memory import DIGEST, KEY, NothingStored, RowsInMemory, members_of, run_of
from fdml.models.registry import model_settings
from fdml.party.driver import PartyStore
from fdml.party.plan import Plan
from fdml.settings import GuardSettings, PrivacySettings, TrainingSettings

X = np.arange(12.0).reshape(6, 2)


def row_set(rows=6, weights=None):
    parts = {"p": as_rows(X[:rows, :1]), "q": as_rows(X[:rows, 1:])}
    return RowSet(parts, np.arange(rows) % 2.0, np.ones(rows) if weights is None else weights)


def plan_of(loss="logistic", classes=2, guards=None, seed=7):
    models = {"p": model_settings(), "q": model_settings("fm")}
    return Plan(TrainingSettings(epochs=3, seed=seed), models, "p", loss, classes, guards=guards or {})


def test_rows_in_memory_are_used_as_they_are():
    train, held_out = row_set(), row_set(2)
    data = RowsInMemory("q", train, held_out, 2)
    shared = data.shared()
    assert (shared.train.tolist(), shared.held_out.tolist()) == (list(range(6)), [0, 1])
    assert (shared.digest, shared.key) == (DIGEST, KEY)
    rows = data.rows(shared)
    assert rows.train is train.parts["q"]
    assert rows.held_out is held_out.parts["q"]
    labels, encoding = data.labels(shared)
    assert labels.train is train.labels
    assert labels.held_out is held_out.labels
    assert (labels.classes, encoding) == (2, None)


def test_without_held_out_rows_there_are_none_to_label():
    data = RowsInMemory("q", row_set(), None, 2)
    assert data.rows(data.shared()).held_out is None
    labels, _ = data.labels(data.shared())
    assert (len(labels.held_out), len(labels.held_out_weights)) == (0, 0)
    assert data.shared().report.held_out == 0


def test_rows_are_weighted_if_any_weight_is_not_one():
    assert not RowsInMemory("q", row_set(), None, 2).weighted
    assert RowsInMemory("q", row_set(weights=np.array([1, 1, 1, 1, 0.5, 1.5])), None, 2).weighted


def test_ids_are_positions():
    found = RowsInMemory("q", row_set(), None, 2).row_ids()
    assert (found.ids.by_position.train, found.train_rows.tolist()) == (6, list(range(6)))


@pytest.mark.parametrize(
    ("loss", "classes", "task"),
    [("logistic", 2, "binary"), ("hinge", 2, "binary"), ("softmax", 3, "multiclass"), ("squared", 0, "regression")],
)
def test_the_run_of_a_plan_has_the_task_of_its_loss(loss, classes, task):
    run = run_of(plan_of(loss, classes))
    assert (run.task, run.loss, run.parties, run.label_party) == (task, loss, ("p", "q"), "p")
    assert run.evaluation.every == "epoch"


def test_a_loss_of_no_task_is_named():
    with pytest.raises(SettingsError, match="there is no loss 'cubic'; there are logistic, hinge"):
        run_of(plan_of("cubic"))


def test_members_have_their_own_model_guard_and_noise():
    guard, start = GuardSettings(clip=1.0), {"theta": np.zeros(2)}
    plan = plan_of(guards={"q": guard})
    run = run_of(plan, PrivacySettings(server="blind"))
    members = members_of(plan, run, row_set(), None, {"q": start})
    assert [member.model.kind for member in members.values()] == ["linear", "fm"]
    assert [member.guard for member in members.values()] == [GuardSettings(), guard]
    assert [member.start for member in members.values()] == [None, start]
    assert members["p"].noise != members["q"].noise
    assert not any(member.is_durable for member in members.values())
    assert all(member.run.privacy.server == "blind" for member in members.values())


def test_noise_follows_from_the_seed():
    def drawn(seed):
        plan = plan_of(seed=seed)
        return members_of(plan, run_of(plan), row_set(), None, {})["p"].noise

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_a_store_of_which_nothing_lasts_takes_everything():
    store: PartyStore = NothingStored()
    for name in ("save_alignment", "save_checkpoint", "save_result", "write_statement", "write_bundle"):
        assert getattr(store, name)(None) is None
