"""Whole runs in this process with a party in column groups."""

from functools import partial

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import SettingsError
from fdml.experiments.in_process import train_in_process
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.settings import GradientGuardSettings, GuardSettings, TrainingSettings

CHANCE = np.random.default_rng(8)
PARTS = {"shop": CHANCE.normal(size=(400, 6)), "bank": CHANCE.normal(size=(400, 3))}
LABELS = (sum(part.sum(axis=1) for part in PARTS.values()) > 0).astype(np.float64)
ROWS = RowSet({name: as_rows(part) for name, part in PARTS.items()}, LABELS, np.ones(400))
GROUPS = {"column_groups": {"web": ("clicks",), "card": ("spent",)}, "group_features": ((0, 2), (1, 3), (0, 1))}
ONE_BATCH = {"batches_per_block": 1, "lookahead": 0, "value_bits": 64}


def trained(kind="linear", groups=True, on_event=lambda _: None, guards=None, tap=None, precision="single", **training):
    wide = model_settings(kind, precision=precision, **(GROUPS if groups else {}))
    models = {"shop": wide, "bank": model_settings("linear", precision=precision)}
    chosen = TrainingSettings(**{"epochs": 20, "batch_size": 20, **training})
    plan = Plan(chosen, models, "shop", "logistic", 2, guards=guards or {})
    return train_in_process(plan, ROWS, in_turns=True, on_event=on_event, **({} if tap is None else {"tap": tap}))


def right(result):
    return float(np.mean((result.score(ROWS.parts)[:, 0] > 0) == LABELS))


def test_a_linear_party_in_groups_ends_as_one_model_does_where_a_block_is_one_batch():
    """Predictions travel in steps of 2**-32, and rounding of one may differ by a step."""
    scores = [
        trained(groups=groups, precision="double", epochs=5, **ONE_BATCH).score(ROWS.parts) for groups in (True, False)
    ]
    np.testing.assert_allclose(*scores, atol=1e-6)
    assert np.abs(scores[0]).max() > 0.1


@pytest.mark.parametrize("kind", ["linear", "fm", "mlp"])
def test_a_party_in_groups_learns_as_well_as_one_that_is_not(kind):
    """What is to be learned is a sum over the columns, so an additive model is enough."""
    assert right(trained(kind, epochs=40)) > right(trained(kind, groups=False, epochs=40)) - 0.02


def test_few_exchanges_go_with_groups():
    assert right(trained(exchanges=2)) > 0.9


def test_the_models_of_two_runs_have_the_same_bits():
    one, again = (trained("mlp", epochs=2).models["shop"].state() for _ in range(2))
    assert one.keys() == again.keys()
    assert all(np.array_equal(one[name], again[name]) for name in one)


def test_no_message_more_is_sent_where_a_party_has_groups():
    seen = {}
    for groups in (True, False):
        trained(groups=groups, epochs=1, tap=partial(_note, seen.setdefault(groups, [])))
    assert seen[True] == seen[False]
    assert ("shop", "Push") in seen[True]


def _note(kinds, party, message):
    kinds.append((party, type(message).__name__))


@pytest.mark.parametrize(
    ("training", "guards", "names"),
    [
        ({"joint": "fm"}, {}, 'joint = "sum"'),
        ({}, {"shop": GuardSettings(training=GradientGuardSettings(clip=1.0, sigma=1.0))}, "guard.training"),
    ],
)
def test_a_party_that_cannot_train_in_groups_says_so_before_the_run(training, guards, names):
    heard = []
    with pytest.raises(SettingsError, match=r"model\.column_groups has 2 groups") as error:
        trained(on_event=heard.append, guards=guards, **training)
    assert names in str(error.value)
    assert heard == []


def test_saved_state_belongs_to_its_groups():
    other = {"web": ("spent",), "card": ("clicks",)}
    one, two = (model_settings("linear", column_groups=each) for each in (GROUPS["column_groups"], other))
    assert one.model_dump_json() != two.model_dump_json()
