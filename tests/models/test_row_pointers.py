"""Models over rows that point to stored ones: to the bit what they are over the same rows copied."""

import numpy as np
import pytest
import torch

from fdml.data.rows import PointedRows, drop_unit_values, has_unit_values, plain_rows, row_count, take
from fdml.models import signals
from fdml.models.kernels.rows import BinaryRows, kernel_view
from fdml.models.learner import LocalLearner
from fdml.models.objective import objective_for
from fdml.models.registry import kinds
from fdml.models.row_pointers import learn_rows, predict_rows
from fdml.models.signals import NO_ROWS, no_scores
from fdml.party.plan import learner_of
from tests.models import random_updates
from tests.models.random_updates import PRECISION_OF, Shape, random_features, random_update, settings_of, stored

KINDS = [kind.name for kind in kinds()]
BY_BATCH = [kind.name for kind in kinds() if not kind.learns_from_all_rows]
"""A pass is its batches one after the other, wherever it is cut. For others every call is a pass of its own: they have
a learner that asks them once, with all rows, and never by stretches of batches."""
SHAPE = Shape(rows=57, width=6, start=5, batch=7)
STORED = 11


def net(inputs, width):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 5), torch.nn.ReLU(), torch.nn.Linear(5, width))


def build(kind, optimizer="sgd", form="dense"):
    chosen = {"optimizer": optimizer, "precision": PRECISION_OF[form]}
    settings = settings_of(kind, module=net, hidden=(5,), factors=3, **chosen)
    return random_updates.build(settings, SHAPE.width, 1)


def pointed(form, *, absent=False, ones=False, seed=2):
    """Rows that point to a few stored ones, the last of which is the row without features."""
    random = np.random.default_rng(seed)
    features = random_features(random, Shape(rows=STORED, width=SHAPE.width, start=0))
    features = (features != 0).astype(np.float32) if ones else features
    features[-1] = 0.0
    index = random.integers(0, STORED - 1, SHAPE.rows)
    if absent:
        index[random.random(SHAPE.rows) < 0.3] = -1
    return PointedRows(stored(features, form), index)


def updates(form="dense", seed=4, count=3):
    random = np.random.default_rng(seed)
    return [random_update(random, "logistic", PRECISION_OF[form], SHAPE, rate=0.05) for _ in range(count)]


def same(one, other):
    one, other = one.state(), other.state()
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.fixture(params=[7, 15, 2**16], ids=["one batch", "two batches", "all"])
def gathered(request, monkeypatch):
    monkeypatch.setattr(signals, "GATHERED", request.param)


@pytest.mark.parametrize("kind", BY_BATCH)
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.usefixtures("gathered")
def test_learning_is_to_the_bit_what_it_is_over_copied_rows(kind, form):
    rows, one, other = pointed(form), build(kind, "adam", form), build(kind, "adam", form)
    copied = plain_rows(rows)
    for block, scores in updates(form):
        learn_rows(one, rows, block, scores)
        other.learn(copied, block, scores)
    same(one, other)
    if kind != "torch":  # its matrix products depend on how many rows there are at once
        np.testing.assert_array_equal(predict_rows(one, rows, 3, 50), other.predict(copied, 3, 50))


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.usefixtures("gathered")
def test_an_optimizer_that_brings_features_up_to_date_learns_to_the_bit_as_over_copied_rows(form):
    """`factored` does so at the end of each part of a block, and copied rows have the same parts."""
    rows, one, other = pointed(form), build("mlp", "factored", form), build("mlp", "factored", form)
    copied = plain_rows(rows)
    for block, scores in updates(form):
        learn_rows(one, rows, block, scores)
        other.learn(copied, block, scores)
    same(one, other)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(BY_BATCH)))
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.usefixtures("gathered")
def test_a_kind_that_learns_from_all_rows_does_so_to_the_bit_with_its_learner(kind, form):
    """Block by block, two epochs: neither where rows are stored nor how many are gathered at once shows."""
    rows = pointed(form)
    settings = settings_of(kind, trees=6, precision=PRECISION_OF[form])
    one, other = (
        learner_of(settings, random_updates.build(settings, SHAPE.width, 1), each, held_out=None, threads=1)
        for each in (rows, plain_rows(rows))
    )
    sizes = [Shape(rows=stop, start=start, batch=7) for start, stop in ((20, SHAPE.rows), (0, 20))]
    random = np.random.default_rng(6)
    for size in sizes * 2:
        update = random_update(random, "logistic", PRECISION_OF[form], size, rate=0.05)
        for each in (one, other):
            each.update(*update)
    assert len(one.state()["ends"]) == 2
    same(one, other)
    np.testing.assert_array_equal(one.predict(3, 50), other.predict(3, 50))
    assert one.predict(3, 50).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.usefixtures("gathered")
def test_a_row_that_the_party_does_not_hold_is_predicted_as_exactly_zero(kind, form):
    rows, model = pointed(form, absent=True), build(kind, form=form)
    for block, scores in updates(form):
        learn_rows(model, rows, block, scores)
    predictions = predict_rows(model, rows, 0, SHAPE.rows)
    absent = rows.pointers < 0
    assert (predictions[absent] == 0.0).all()
    assert (predictions[~absent] != 0.0).any()
    assert (model.predict(take(rows, np.flatnonzero(absent))) != 0.0).any(), "the model itself has a bias"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_learned_from_a_row_that_the_party_does_not_hold(kind):
    rows, one, other = pointed("dense", absent=True), build(kind), build(kind)
    for block, scores in updates():
        absent = rows.pointers[block.start :] < 0
        learn_rows(one, rows, block, scores)
        lies = scores._replace(
            labels=np.where(absent, 1 - scores.labels, scores.labels),
            total=np.where(absent[:, None], 9.0, scores.total).astype(np.float32),
        )
        learn_rows(other, rows, block, lies)
    same(one, other)


def test_a_batch_without_any_row_of_the_party_teaches_nothing():
    model = build("linear")
    rows = PointedRows(stored(np.ones((2, SHAPE.width), np.float32), "dense"), np.full(SHAPE.rows, -1))
    before = model.state()
    settings = [(block, scores) for block, scores in updates()]
    for block, scores in settings:
        learn_rows(model, rows, block, scores)
    assert np.abs(model.state()["theta"]).max() == np.abs(before["theta"]).max() == 0.0


def test_a_learner_has_it_for_training_and_held_out_rows():
    rows, held_out = pointed("sparse", absent=True), pointed("sparse", absent=True, seed=9)
    learner = LocalLearner(build("mlp", form="sparse"), rows, held_out=held_out, threads=2)
    learner.warm_up(objective_for("logistic", 2))
    for block, scores in updates("sparse"):
        learner.update(block, scores)
    assert (learner.predict(0, SHAPE.rows)[rows.pointers < 0] == 0.0).all()
    assert (learner.predict_held_out()[held_out.pointers < 0] == 0.0).all()
    assert learner.predict(4, 4).shape == (0, 1)


def test_rows_of_ones_are_learned_from_without_their_values():
    rows, one, other = pointed("sparse", ones=True), build("linear"), build("linear")
    assert has_unit_values(drop_unit_values(rows))
    assert not has_unit_values(drop_unit_values(pointed("sparse")))
    copied = drop_unit_values(plain_rows(rows))
    for block, scores in updates():
        learn_rows(one, drop_unit_values(rows), block, scores)
        other.learn(copied, block, scores)
    same(one, other)


def test_rows_of_ones_keep_their_form_where_the_party_holds_none_of_them():
    """Another form would be compiled for them, which takes seconds."""
    seen = []

    class Watched:
        def predict(self, rows):
            seen.append(type(kernel_view(rows)))
            return np.ones((row_count(rows), 1))

    rows = drop_unit_values(pointed("sparse", ones=True))
    none = rows._replace(pointers=np.full(3, -1))
    assert not predict_rows(Watched(), none, 0, 3).any()
    predict_rows(Watched(), rows, 0, 3)
    assert seen == [BinaryRows, BinaryRows]


def test_a_pass_without_a_batch_changes_nothing():
    model = build("fm")
    before = model.state()
    learn_rows(model, pointed("dense"), NO_ROWS, no_scores(objective_for("logistic", 2), model.dtype))
    for name, array in before.items():
        np.testing.assert_array_equal(model.state()[name], array)
