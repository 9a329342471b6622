"""Whole runs in this process with a party in shards."""

from functools import partial

import numpy as np
import pytest

from fdml.cluster.settings import WorkersSettings
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import SettingsError
from fdml.events import Remark
from fdml.experiments.in_process import train_in_process
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.party.settings import PartySettings
from fdml.settings import GradientGuardSettings, GuardSettings, TrainingSettings

CHANCE = np.random.default_rng(8)
PARTS = {name: CHANCE.normal(size=(400, 3)).astype(np.float32) for name in ("shop", "bank")}
LABELS = (sum(part.sum(axis=1) for part in PARTS.values()) > 0).astype(np.float64)
ROWS = RowSet({name: as_rows(part) for name, part in PARTS.items()}, LABELS, np.ones(400))


def trained(shards, kind="linear", on_event=lambda _: None, guards=None, **training):
    models = {"shop": model_settings(kind, shards=shards), "bank": model_settings("linear")}
    chosen = TrainingSettings(**{"epochs": 20, "batch_size": 20, **training})
    plan = Plan(chosen, models, "shop", "logistic", 2, guards=guards or {})
    return train_in_process(plan, ROWS, in_turns=True, on_event=on_event)


def right(result):
    return float(np.mean((result.score(ROWS.parts)[:, 0] > 0) == LABELS))


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_party_in_shards_learns_beside_one_that_is_not(kind):
    assert right(trained(4, kind, epochs=60)) > right(trained(1, kind, epochs=60)) - 0.02


def test_few_exchanges_go_with_shards():
    assert right(trained(2, exchanges=2)) > 0.9


def test_a_run_says_that_groups_of_shards_are_averaged():
    heard = []
    trained(12, "mlp", on_event=heard.append)
    assert [event.text for event in heard if isinstance(event, Remark) and "2 groups" in event.text]


@pytest.mark.parametrize(
    ("training", "guards", "names"),
    [
        ({"joint": "fm"}, {}, 'joint = "sum"'),
        ({}, {"shop": GuardSettings(training=GradientGuardSettings(clip=1.0, sigma=1.0))}, "guard.training"),
    ],
)
def test_a_party_that_cannot_train_in_shards_says_so_before_the_run(training, guards, names):
    heard = []
    with pytest.raises(SettingsError, match=r"model\.shards is 2") as error:
        trained(2, on_event=heard.append, guards=guards, **training)
    assert names in str(error.value)
    assert heard == []


def test_party_toml_says_who_works():
    settings = PartySettings(party="shop", federation="f.toml", workers={"kind": "processes", "count": 3})
    assert settings.workers == WorkersSettings(kind="processes", count=3)
    for wrong in ({"kind": "people"}, {"count": 0}, {"seconds": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PartySettings(party="shop", federation="f.toml", workers=wrong)


def test_the_models_depend_on_the_shards_of_a_party():
    one, again, other = (trained(shards, epochs=2).models["shop"].state()["theta"] for shards in (2, 2, 3))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_no_message_more_is_sent_where_a_party_has_shards():
    seen = {}
    for shards in (1, 2):
        models = {"shop": model_settings("linear", shards=shards), "bank": model_settings("linear")}
        plan = Plan(TrainingSettings(epochs=1, batch_size=20), models, "shop", "logistic", 2)
        kinds = seen.setdefault(shards, [])
        train_in_process(plan, ROWS, in_turns=True, tap=partial(_note, kinds))
    assert seen[1] == seen[2]
    assert ("shop", "Push") in seen[1]


def _note(kinds, party, message):
    kinds.append((party, type(message).__name__))


def test_saved_state_belongs_to_a_number_of_shards():
    two, three = (model_settings("linear", shards=shards).model_dump_json() for shards in (2, 3))
    assert two != three


def test_the_number_of_shards_has_limits():
    for wrong in (0, 1025):
        with pytest.raises(SettingsError, match="shards"):
            model_settings("linear", shards=wrong)
