"""Models in column groups: one model where it is linear, an additive one where it is a net."""

import json

import numpy as np
import pytest

from fdml.errors import DataError, SettingsError
from fdml.models.column_groups import (
    GroupedModel,
    added,
    features_by_group,
    group_scores,
    grouped_features,
    grouped_model,
)
from fdml.models.kind import ModelSpec
from fdml.models.registry import build_model, model_settings, resolved_model
from fdml.models.signals import BlockUpdate
from tests.models.random_updates import FORMS_OF_DOUBLES, WIDTH_OF, Shape, random_features, random_update, stored

SHAPE = Shape(rows=120, start=0, batch=120)
X = random_features(np.random.default_rng(6), SHAPE)
WIDTH = SHAPE.width
RUNS = ((0, 2), (1, WIDTH - 4), (0, 1), (2, 1))
GROUPS = {"web": ("clicks",), "card": ("spent",)}


def build(kind, groups=True, width=1, runs=RUNS, **settings):
    grouped = {"column_groups": GROUPS, "group_features": runs} if groups else {}
    chosen = resolved_model(model_settings(kind, **grouped, **settings), SHAPE.rows)
    return build_model(chosen, ModelSpec(inputs=WIDTH, width=width, bias=True, key=(1, "test")))


def one_batch(loss, seed, precision="double"):
    """A block of one batch, as Algorithm 1 of the paper has it."""
    block, scores = random_update(np.random.default_rng(seed), loss, precision, SHAPE)
    order = np.arange(SHAPE.rows)
    return BlockUpdate(0, order, np.array([0, len(order)]), block.rates[:1]), scores


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "momentum", "adagrad"])
@pytest.mark.parametrize("storage", FORMS_OF_DOUBLES)
def test_a_linear_model_in_groups_is_one_model_where_a_block_is_one_batch(optimizer, storage):
    rows = stored(X, storage)
    settings = {"optimizer": optimizer, "precision": "double", "l2": 0.01}
    one, groups = build("linear", groups=False, **settings), build("linear", **settings)
    for seed in range(8):
        update = one_batch("logistic", seed)
        for model in (one, groups):
            model.learn(rows, *update)
        np.testing.assert_allclose(groups.predict(rows), one.predict(rows), rtol=1e-9, atol=1e-10)
    assert np.abs(one.predict(rows)).max() > 0.01
    assert groups.penalty() == pytest.approx(one.penalty(), rel=1e-9)


def test_over_more_batches_groups_assume_that_the_others_move_as_they_do():
    """Between the batches of a block no group sees the others, so they are not one model to the last digit."""
    rows, settings = stored(X, "sparse"), {"optimizer": "sgd", "precision": "double"}
    one, groups = build("linear", groups=False, **settings), build("linear", **settings)
    block, scores = random_update(np.random.default_rng(3), "logistic", "double", Shape(rows=120, start=0, batch=10))
    for model in (one, groups):
        model.learn(rows, block, scores)
    assert np.abs(groups.predict(rows) - one.predict(rows)).max() > 1e-6


@pytest.mark.parametrize("kind", ["linear", "fm", "mlp"])
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_a_prediction_is_the_sum_of_what_each_group_says_of_its_own_columns(kind, loss):
    model = build(kind, width=WIDTH_OF[loss])
    model.learn(stored(X, "dense"), *random_update(np.random.default_rng(3), loss, "single", SHAPE))
    base = model.predict(stored(X, "dense"))
    for features in grouped_model(model).features:
        changed = X.copy()
        changed[:, features] = X[::-1, features]
        alone = [each.copy() for each in (X, changed)]
        for each in alone:
            each[:, np.setdiff1d(np.arange(WIDTH), features)] = 0.0
        first, second = (model.predict(stored(each, "dense")) for each in alone)
        moved = model.predict(stored(changed, "dense")) - base
        np.testing.assert_allclose(moved, second - first, atol=2e-5)


@pytest.mark.parametrize("average", [None, 0.9])
@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_restored_model_goes_on_bit_by_bit(kind, average):
    rows, (model, again) = stored(X, "sparse"), (build(kind, average=average, precision="double") for _ in range(2))
    model.learn(rows, *random_update(np.random.default_rng(1), "logistic", "double", SHAPE))
    again.restore(model.state())
    for each in (model, again):
        each.learn(rows, *random_update(np.random.default_rng(2), "logistic", "double", SHAPE))
    assert model.predict(rows).tobytes() == again.predict(rows).tobytes()


def test_a_state_of_another_model_is_refused_and_changes_nothing():
    model, other = build("linear"), build("linear", groups=False)
    before = model.state()
    for wrong in (other.state(), {**before, "1/theta": before["1/theta"][1:]}):
        with pytest.raises(DataError, match="was it another model"):
            model.restore(wrong)
    assert all(np.array_equal(model.state()[name], array) for name, array in before.items())


def test_only_the_first_group_has_the_bias():
    model = build("linear")
    assert isinstance(model, GroupedModel)
    sizes = [len(each.parameters) for each in model.models]
    assert sizes == [4, WIDTH - 4, 1]
    assert sum(sizes) == WIDTH + 1


def test_hidden_layers_of_groups_begin_with_weights_of_their_own():
    first, second, _ = build("mlp", runs=((0, 3), (1, 3), (2, WIDTH - 6))).models
    assert first.parameters[:6].tolist() != second.parameters[:6].tolist()


def test_columns_are_found_by_name_and_those_without_a_group_are_one():
    settings = model_settings("linear", column_groups={"web": ("clicks", "visits"), "card": ("spent",)})
    found = (("age", 1), ("clicks", 1), ("clicks", 3), ("spent", 2), ("visits", 1), ("city", 9))
    assert grouped_features(settings, found) == ((2, 1), (0, 4), (1, 2), (0, 1), (2, 9))
    known = settings.model_copy(update={"group_features": grouped_features(settings, found)})
    web, card, rest = features_by_group(known, 17)
    assert (web.tolist(), card.tolist()) == ([1, 2, 3, 4, 7], [5, 6])
    assert rest.tolist() == [0, *range(8, 17)]


def test_a_column_without_a_feature_is_in_no_run():
    settings = model_settings("linear", column_groups={"web": ("clicks",), "card": ("spent",)})
    assert grouped_features(settings, (("clicks", 0), ("spent", 2), ("age", 0))) == ((1, 2),)


def test_what_is_known_of_features_is_read_back_from_a_card():
    settings = model_settings("mlp", column_groups=GROUPS, group_features=RUNS)
    assert model_settings(**json.loads(settings.model_dump_json())) == settings


@pytest.mark.parametrize("columns", [(), (("age", 1),)])
def test_a_column_that_is_none_is_refused(columns):
    settings = model_settings("linear", column_groups={"web": ("clicks",)})
    with pytest.raises(
        SettingsError, match=r"names column 'clicks', which is no feature of this party; it has (age|a m)"
    ):
        grouped_features(settings, columns)


def test_rows_without_names_of_columns_are_refused():
    with pytest.raises(SettingsError, match=r"knows those of 0; of a matrix set model\.group_features"):
        build("linear", runs=())


def test_a_kind_without_column_groups_is_refused():
    with pytest.raises(SettingsError, match="a model of kind 'trees' has no column groups"):
        build("trees")


def test_what_the_party_has_moved_since_its_push_is_counted_once():
    _, scores = random_update(np.random.default_rng(3), "logistic", "double", SHAPE)
    own = [np.full_like(scores.total, each) for each in (0.5, 0.25)]
    given = group_scores(scores, own)
    expected = scores.total + scores.echo * (0.75 - scores.own_at_push)
    for each, part in zip(given, own, strict=True):
        np.testing.assert_allclose(each.total, expected)
        assert each.own_at_push is part
        assert each.echo == 2 * scores.echo
    assert added(own).tolist() == (own[0] + own[1]).tolist()
