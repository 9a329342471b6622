"""The kind of trees: its settings, its defaults, and trees in runs of several parties."""

import sys

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.data.rows import DenseRows, PointedRows
from fdml.errors import MissingExtra, SettingsError
from fdml.experiments.in_process import train_in_process
from fdml.models.collecting import CollectingLearner
from fdml.models.joint_model import JointModel
from fdml.models.kind import ModelSpec
from fdml.models.learner import LocalLearner
from fdml.models.learning_rate import RateInputs
from fdml.models.metrics import auc
from fdml.models.model import PROGRESS
from fdml.models.registry import (
    build_model,
    compiled_kinds,
    encoding_of,
    kind_named,
    model_settings,
    ready_kinds,
    resolved_model,
)
from fdml.party.plan import Plan, learner_of
from fdml.settings import PrivacySettings, TrainingSettings

COUNT = 400
RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(COUNT, 4)).astype(np.float32)
SCORE = np.sign(X[:, 0] * X[:, 1]) + np.abs(X[:, 2]) - 0.8
LABELS = (RANDOM.random(COUNT) < 1 / (1 + np.exp(-3 * SCORE))).astype(np.float64)
ROWS = RowSet({"ann": DenseRows(X[:, :2].copy()), "bob": DenseRows(X[:, 2:].copy())}, LABELS, np.ones(COUNT))


def plan_of(kinds=("trees", "trees"), loss="logistic", classes=2, **training):
    models = {
        name: model_settings(kind, **({"trees": 40} if kind == "trees" else {}))
        for name, kind in zip(ROWS.parts, kinds, strict=True)
    }
    values = {"epochs": 4, "batch_size": 50, "batches_per_block": 2, "value_bits": 64, **training}
    return Plan(TrainingSettings(**values), models, "ann", loss, classes)


def trained(rows=ROWS, privacy=None, **options):
    return train_in_process(plan_of(**options), rows, in_turns=True, privacy=privacy)


def auc_of(result, rows=ROWS):
    return auc(rows.labels, result.score(rows.parts)[:, 0], rows.weights)


def test_it_can_be_built_from_its_name_and_has_no_kernels():
    assert "trees" in ready_kinds()
    assert "trees" not in compiled_kinds()
    assert kind_named("trees").learns_from_all_rows
    assert encoding_of(model_settings("trees")) == "native"
    assert {encoding_of(model_settings(kind)) for kind in compiled_kinds()} == {"numeric"}


def test_without_lightgbm_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    monkeypatch.setattr("fdml.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"a party of trees needs LightGBM; .*fdml\[trees\]"):
        build_model(model_settings("trees", l2=0.0), ModelSpec(3, 1, True, (1,)))


def test_its_defaults_follow_from_the_rows_alone():
    settings = resolved_model(model_settings("trees"), 5000, entries=80.0)
    assert settings.l2 == 1 / 5000
    assert settings.optimizer == "auto"
    given = RateInputs(curvature=0.25, parties=9, inputs=20, square_norm=np.nan)
    assert kind_named("trees").default_rate(settings, given) == 0.15


@pytest.mark.parametrize(
    "values", [{"leaves": 1}, {"trees": 0}, {"min_rows": 0}, {"threads": 0}, {"categories": (-1,)}]
)
def test_settings_out_of_range_are_refused(values):
    with pytest.raises(SettingsError, match=next(iter(values))):
        model_settings("trees", **values)


def test_its_learner_collects_and_that_of_others_does_not():
    for kind, expected in (("trees", CollectingLearner), ("linear", LocalLearner)):
        settings = model_settings(kind, l2=0.1)
        made = build_model(settings, ModelSpec(2, 1, True, (1,)))
        assert type(learner_of(settings, made, ROWS.parts["ann"], held_out=None, threads=1)) is expected


def test_two_parties_of_trees_learn_what_each_of_them_knows():
    assert auc_of(trained()) > 0.95


@pytest.mark.parametrize("kinds", [("trees", "linear"), ("mlp", "trees"), ("fm", "trees")])
def test_trees_mix_with_other_kinds(kinds):
    assert auc_of(trained(kinds=kinds)) > 0.6


@pytest.mark.parametrize(
    "training",
    [
        {"batches_per_block": "all"},
        {"lookahead": 0},
        {"passes": 2},
        {"staleness": 1},
        {"value_bits": 4},
    ],
    ids=str,
)
def test_trees_take_any_way_of_exchange(training):
    assert auc_of(trained(**training)) > 0.85


def test_few_exchanges_begin_alone():
    plan = plan_of()
    training = TrainingSettings(exchanges=3, epochs=8, batch_size=50)
    few = Plan(training, plan.models, "ann", "logistic", 2)
    assert auc_of(train_in_process(few, ROWS, in_turns=True)) > 0.9


@pytest.mark.parametrize("server", ["plain", "blind"])
def test_private_labels_and_a_blind_server_are_no_hindrance(server):
    labels = "private" if server == "plain" else "shared"
    privacy = PrivacySettings(labels=labels, label_epsilon="off", server=server)
    assert auc_of(trained(privacy=privacy)) > 0.9


def test_the_same_seed_gives_the_same_bits_whoever_is_first():
    one, other = trained(), train_in_process(plan_of(), ROWS)
    for name in ROWS.parts:
        states = [result.models[name].state() for result in (one, other)]
        assert states[0].keys() == states[1].keys()
        for key, array in states[0].items():
            np.testing.assert_array_equal(states[1][key], array, err_msg=key)
        assert not any(key.startswith(PROGRESS) for key in states[0])


def test_a_training_goes_on_from_the_trees_of_another():
    first = trained()
    start = {name: model.state() for name, model in first.models.items()}
    second = train_in_process(plan_of(), ROWS, start=start, in_turns=True)
    grown = {name: len(model.state()["ends"]) for name, model in second.models.items()}
    assert grown == {"ann": 8, "bob": 8}


@pytest.mark.parametrize("joint", ["fm", "head"])
def test_under_other_joint_functions_trees_give_the_score_alone(joint):
    result = trained(joint=joint, joint_width=2)
    model = result.models["bob"]
    assert isinstance(model, JointModel)
    predictions = model.predict(ROWS.parts["bob"])
    assert predictions[:, 0].any()
    assert not predictions[:, 1:].any()
    assert auc_of(result) > 0.9


def test_rows_of_another_grain_are_learned_from_where_they_are_held():
    stored = DenseRows(np.concatenate([X[:50, 2:], np.zeros((1, 2), np.float32)]))
    pointers = np.where(np.arange(COUNT) % 5 == 0, -1, np.arange(COUNT) % 50)
    labels = (np.abs(X[np.maximum(pointers, 0), 2]) > 0.7).astype(float)
    rows = RowSet({"ann": ROWS.parts["ann"], "bob": PointedRows(stored, pointers)}, labels, np.ones(COUNT))
    result = trained(rows)
    predictions = result.models["bob"].predict(rows.parts["bob"])
    assert not predictions[pointers < 0].any()
    held = rows.take(np.flatnonzero(pointers >= 0))
    assert auc_of(result, held) > 0.9


def test_several_classes_and_a_regression_are_learned():
    classes = np.digitize(X[:, 2], [-0.5, 0.5]).astype(float)
    several = RowSet(ROWS.parts, classes, ROWS.weights)
    score = trained(several, loss="softmax", classes=3).score(several.parts)
    assert (score.argmax(axis=1) == classes).mean() > 0.9
    target = RowSet(ROWS.parts, (SCORE - SCORE.mean()) / SCORE.std(), ROWS.weights)
    found = trained(target, loss="squared", classes=0, epochs=10).score(target.parts)[:, 0]
    assert np.mean((found - target.labels) ** 2) < 0.3
