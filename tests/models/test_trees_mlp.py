"""Trees and a network in one party: each learns beside the other, over rows that have the features of both."""

import pickle
import sys

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.data.rows import PointedRows, SparseRows, as_rows
from fdml.errors import DataError, MissingExtra, SettingsError
from fdml.experiments.in_process import train_in_process
from fdml.models.collecting import CollectingLearner
from fdml.models.joint import Interactions
from fdml.models.kind import ModelSpec
from fdml.models.metrics import auc
from fdml.models.model import PROGRESS, current_model
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, encoding_of, kind_named, model_settings
from fdml.models.signals import BlockUpdate, Scores
from fdml.models.trees_mlp.model import TreesAndNetwork
from fdml.party.plan import Plan, learner_of
from fdml.settings import TrainingSettings
from fdml.settings.joint import JointSettings
from tests.models import random_updates

COUNT, BLOCK = 300, 100
RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(COUNT, 4)).astype(np.float32)
SCORE = np.sign(X[:, 0] * X[:, 1]) + 1.5 * X[:, 1] * X[:, 3]
LABELS = (RANDOM.random(COUNT) < 1 / (1 + np.exp(-3 * SCORE))).astype(np.float64)


def stored(x):
    """Rows in the form that kernels of double precision are compiled for anyway."""
    return random_updates.stored(x, random_updates.FORM_OF["double"])


ROWS = RowSet({"ann": as_rows(X[:, :2]), "bob": as_rows(X[:, 2:])}, LABELS, np.ones(COUNT))
OBJECTIVES = {
    "sum": objective_for("logistic", 2),
    "fm": objective_for("logistic", 2, JointSettings(joint="fm", joint_width=2)),
    "head": objective_for("logistic", 2, JointSettings(joint="head", joint_width=2)),
}
JOINTS = ["sum", pytest.param("fm", marks=pytest.mark.slow), "head"]
"""Products of vectors have kernels of their own, compiled in seconds."""


def settings(**values):
    return model_settings("trees+mlp", **{"hidden": (6,), "trees": 20, "l2": 0.01, "precision": "double", **values})


def model(objective=OBJECTIVES["sum"], inputs=4, seed=1, **values):
    spec = ModelSpec(inputs, objective.width, True, (seed, "model"), joint=objective.joint, passes=4, rows=COUNT)
    return build_model(settings(**values), spec)


def learner(objective=OBJECTIVES["sum"], rows=None, held_out=None, **values):
    chosen, rows = settings(**values), stored(X) if rows is None else rows
    return learner_of(chosen, model(objective, **values), rows, held_out=held_out, threads=1)


def update(start=0, size=COUNT, objective=OBJECTIVES["sum"], echo=2.0):
    random = np.random.default_rng([start, size])
    block = BlockUpdate(start, random.permutation(size), np.array([0, size // 2, size]), np.array([0.02, 0.01]))
    total, own = random.normal(size=(2, size, objective.width))
    labels = LABELS[start : start + size]
    return block, Scores(total, own, labels, random.uniform(0.5, 1.5, size), echo, objective)


def epoch(made, objective=OBJECTIVES["sum"], starts=(200, 0, 100)):
    for start in starts:
        made.update(*update(start, BLOCK, objective))
    return made


def trained(joint="sum", kinds=("trees+mlp", "trees+mlp"), rows=ROWS, **training):
    own = {"trees": 24, "hidden": (8,)}
    models = {
        name: model_settings(
            kind, **{key: value for key, value in own.items() if key in kind_named(kind).settings.model_fields}
        )
        for name, kind in zip(ROWS.parts, kinds, strict=True)
    }
    values = {"epochs": 6, "batch_size": 20, "batches_per_block": 3, "value_bits": 64, "joint": joint, **training}
    plan = Plan(TrainingSettings(**values), models, "ann", "logistic", 2)
    return train_in_process(plan, rows, in_turns=True)


def auc_of(result, rows=ROWS):
    return auc(rows.labels, result.score(rows.parts)[:, 0], rows.weights)


def test_it_wants_both_encodings_and_collects():
    assert encoding_of(settings()) == "both"
    assert kind_named("trees+mlp").learns_from_all_rows
    assert isinstance(learner(), CollectingLearner)


def test_without_lightgbm_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    monkeypatch.setattr("fdml.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"fdml\[trees\]"):
        model()


@pytest.mark.parametrize("values", [{"leaves": 1}, {"tree_rate": 0.0}, {"native_from": -1}, {"dropout": 1.0}])
def test_settings_out_of_range_are_refused(values):
    with pytest.raises(SettingsError, match=next(iter(values))):
        settings(**values)


def test_each_part_has_its_own_settings():
    chosen = settings(native_from=3, categories=(3, 5), optimizer="adam", average=0.9, dropout=0.2)
    assert chosen.of_network.dropout == 0.2
    assert chosen.of_network.l2 == 0.01
    assert chosen.of_trees(200).categories == (0, 2)
    assert chosen.of_trees(200).l2 == 1 / 200


@pytest.mark.parametrize("joint", JOINTS)
def test_the_network_learns_as_one_whose_push_had_no_trees(joint):
    objective = OBJECTIVES[joint]
    whole = model(objective)
    whole.learn(stored(X), *update(objective=objective))
    outputs = whole if joint == "sum" else whole.outputs
    twin = build_model(
        settings().of_network.model_copy(update={"optimizer": "adam"}),
        ModelSpec(4, objective.width, True, (1, "model"), joint=objective.joint),
    )
    network = twin if joint == "sum" else twin.outputs
    network.restore({name: array for name, array in whole.state().items() if name in network.state()})
    trees = outputs.predict(stored(X)) - network.predict(stored(X))
    assert trees[:, 0].any()
    assert not trees[:, 1:].any(), "the vector is the network's"
    block, scores = update(7, 50, objective)
    whole.learn_block(stored(X), block, scores)
    twin.learn(stored(X), block, scores._replace(own_at_push=scores.own_at_push - trees[7:57]))
    np.testing.assert_allclose(outputs.predict(stored(X)) - trees, network.predict(stored(X)), rtol=1e-9)


@pytest.mark.parametrize("joint", JOINTS)
def test_the_trees_learn_from_the_score_with_the_networks_part_as_it_is_now(joint):
    """Trees lower the loss at the score of the echo rule, which has the whole party in it."""
    objective = OBJECTIVES[joint]
    made = model(objective, trees=4, tree_rate=0.5)
    block, scores = update(objective=objective)
    rows = np.arange(COUNT)

    def loss():
        _, score = scores.moved(rows, made.predict(stored(X)))
        return float((objective.loss.value(score, scores.labels) * scores.weights).mean())

    first = loss()
    before = made.predict(stored(X))
    made.learn_epoch(stored(X), block, scores)
    assert loss() < first
    moved = made.predict(stored(X)) - before
    assert moved[:, 0].any()
    assert not moved[:, 1:].any()


@pytest.mark.parametrize("joint", JOINTS)
def test_the_network_moves_with_every_block_and_the_trees_with_the_last(joint):
    objective = OBJECTIVES[joint]
    made = learner(objective)
    epoch(made, objective, (200, 0))
    assert len(made.state()["ends"]) == 0
    moved = made.predict(0, COUNT)
    assert not np.array_equal(moved, learner(objective).predict(0, COUNT))
    epoch(made, objective, (100,))
    assert len(made.state()["ends"]) == 1


@pytest.mark.parametrize("done", [(), (200,), (200, 0), (200, 0, 100)], ids=str)
@pytest.mark.parametrize("joint", JOINTS[:2])
@pytest.mark.parametrize(
    "values", [{}, {"average": 0.9}, pytest.param({"dropout": 0.3}, marks=pytest.mark.slow)], ids=str
)
def test_a_learner_that_was_stopped_anywhere_in_an_epoch_ends_with_the_same_bits(done, joint, values):
    objective = OBJECTIVES[joint]
    calm = epoch(epoch(learner(objective, **values), objective), objective)
    stopped = epoch(epoch(learner(objective, **values), objective), objective, done)
    again = learner(objective, **values)
    again.restore(stopped.state())
    epoch(again, objective, (200, 0, 100)[len(done) :])
    for name, array in calm.state().items():
        np.testing.assert_array_equal(again.state()[name], array, err_msg=name)


@pytest.mark.parametrize("form", random_updates.FORMS_OF_DOUBLES)
def test_network_and_trees_read_their_own_features(form):
    """The trees' features are the network's backwards: so whoever read the other's would predict something else."""
    both = np.hstack([X, X[:, ::-1]])
    rows = as_rows(both)
    if form == "sparse":
        indptr = np.arange(0, both.size + 1, 8)
        rows = SparseRows(indptr, np.tile(np.arange(8, dtype=np.int32), COUNT), both.ravel(), 8)
    parted, same = model(inputs=8, native_from=4), model()
    assert isinstance(parted, TreesAndNetwork)
    parted.learn(rows, *update())
    same.learn(stored(X), *update())
    np.testing.assert_allclose(parted.state()["theta"], same.state()["theta"], rtol=1e-12)
    np.testing.assert_allclose(parted.state()["gains"], same.state()["gains"][::-1], rtol=1e-6)
    bound = parted.predict(rows)
    parted.bind(rows)
    np.testing.assert_array_equal(parted.predict(rows), bound)
    np.testing.assert_array_equal(parted.predict(rows, 5, 9), bound[5:9])


def test_rows_that_point_to_stored_ones_are_learned_to_the_bit():
    kept = stored(np.vstack([X, np.zeros((1, 4), np.float32)]))
    plain, pointed = epoch(learner()), epoch(learner(rows=PointedRows(kept, np.arange(COUNT))))
    for name, array in plain.state().items():
        np.testing.assert_array_equal(pointed.state()[name], array, err_msg=name)


def test_a_row_that_is_not_held_has_a_prediction_of_zero():
    kept, pointers = stored(np.vstack([X, np.zeros((1, 4), np.float32)])), np.arange(COUNT)
    pointers[::7] = -1
    made = epoch(learner(rows=PointedRows(kept, pointers)))
    found = made.predict(0, COUNT)
    assert not found[::7].any()
    assert found[1::7].all()


def test_held_out_rows_are_by_the_average_and_training_rows_by_the_weights():
    made = learner(held_out=stored(X), average=0.9)
    epoch(epoch(made))
    found = made.predict(0, COUNT)
    assert not np.array_equal(found, made.predict_held_out())
    kept = {name: array for name, array in made.state().items() if not name.startswith(PROGRESS)}
    plain = model(seed=5)
    plain.restore(kept)
    np.testing.assert_array_equal(plain.predict(stored(X)), made.predict_held_out())


def test_without_an_average_the_model_in_training_is_the_model():
    made = model()
    assert current_model(made) is made


def test_a_pickled_model_has_no_rows_and_predicts_the_same():
    made = model()
    made.bind(stored(X))
    made.learn(stored(X), *update())
    copy = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(copy.predict(stored(X)), made.predict(stored(X)))


@pytest.mark.parametrize("joint", ["sum", "fm", "head"])
def test_two_parties_learn_together(joint):
    assert auc_of(trained(joint)) > (0.7 if joint == "sum" else 0.8)


@pytest.mark.parametrize("kinds", [("trees+mlp", "linear"), ("mlp", "trees+mlp"), ("trees", "trees+mlp")])
def test_it_mixes_with_other_kinds(kinds):
    assert auc_of(trained("fm", kinds)) > 0.65


@pytest.mark.parametrize(
    "training", [{"batches_per_block": "all"}, {"passes": 2}, {"staleness": 1}, {"lookahead": 0}], ids=str
)
def test_it_takes_any_way_of_exchange(training):
    assert auc_of(trained(**training)) > 0.7


def test_a_state_of_other_trees_changes_nothing():
    made = model()
    made.learn(stored(X), *update())
    before = made.state()
    with pytest.raises(DataError, match="saved 'gains' has shape"):
        made.restore({**{name: array + 1 for name, array in before.items()}, "gains": np.zeros(9)})
    for name, array in made.state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.slow
def test_vectors_of_an_fm_are_the_networks_alone():
    made = model(OBJECTIVES["fm"])
    assert isinstance(made.joint, Interactions)
    made.learn(stored(X), *update(objective=OBJECTIVES["fm"]))
    assert made.outputs.predict(stored(X)).shape == (COUNT, 3)
