"""Trees: they learn what linear models cannot, predict the same from their text, and take what is missing as it is."""

import lightgbm
import numpy as np
import pytest
import scipy.sparse as sp

from fdml.data.rows import DenseRows, NativeFeatures, PointedRows, as_rows
from fdml.errors import SettingsError
from fdml.models.kind import ModelSpec
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings, resolved_model, with_native
from fdml.models.signals import BlockUpdate, Scores
from fdml.models.trees.text import joined, leaf_values, split_gains
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.noise import NoiseKey

LOGISTIC = objective_for("logistic", 2)
ROWS = 400


def model(width=1, inputs=3, passes=4, dp_sgd=None, **values):
    settings = resolved_model(model_settings("trees", **{"trees": 40, **values}), ROWS)
    return build_model(settings, ModelSpec(inputs, width, True, (7, "model"), dp_sgd=dp_sgd, passes=passes))


def learn(made, rows, labels, *, rate=0.3, objective=LOGISTIC, passes=1, echo=1.0):
    """Alone: the total is the model's own prediction."""
    count = len(labels)
    whole = BlockUpdate(0, np.arange(count), np.array([0, count]), np.array([rate]))
    for _ in range(passes):
        own = made.predict(rows)
        made.learn(rows, whole, Scores(own, own, labels, np.ones(count), echo, objective))
    return made


@pytest.fixture(scope="module")
def xor():
    random = np.random.default_rng(0)
    values = random.normal(size=(ROWS, 3)).astype(np.float32)
    return DenseRows(values), (values[:, 0] * values[:, 1] > 0).astype(np.float64)


def accuracy(made, rows, labels):
    return ((made.predict(rows)[:, 0] > 0) == labels).mean()


def test_it_learns_a_product_of_two_features(xor):
    assert accuracy(learn(model(), *xor, passes=3), *xor) > 0.95


def test_missing_numbers_tell_and_so_do_categories_without_order():
    random = np.random.default_rng(1)
    kind = random.integers(0, 8, ROWS).astype(np.float32)
    number = random.normal(size=ROWS).astype(np.float32)
    number[random.random(ROWS) < 0.5] = np.nan
    rows = DenseRows(np.column_stack([kind, number]))
    labels = (np.isin(kind, [0, 3, 6]) ^ np.isnan(number)).astype(np.float64)
    made = model(inputs=2, categories=(0,), min_rows=5)
    assert accuracy(learn(made, rows, labels, passes=4), rows, labels) > 0.95


def test_sparse_and_dense_rows_give_the_same_trees():
    random = np.random.default_rng(2)
    values = (random.normal(size=(ROWS, 3)) * (random.random((ROWS, 3)) < 0.4)).astype(np.float32)
    labels = (values[:, 0] > 0).astype(np.float64)
    one = learn(model(), as_rows(values), labels)
    other = learn(model(), as_rows(sp.csr_array(values)), labels)
    np.testing.assert_array_equal(one.predict(as_rows(values)), other.predict(as_rows(values)))


def test_every_pass_adds_its_share_of_the_trees(xor):
    made = learn(model(trees=40, passes=4), *xor)
    assert made.state()["ends"].tolist() == [10]
    assert learn(made, *xor, passes=2).state()["ends"].tolist() == [10, 20, 30]


def test_the_bundle_text_is_a_model_of_lightgbm_with_the_same_predictions(xor):
    made = learn(model(precision="double"), *xor, passes=3)
    plain = lightgbm.Booster(model_str=made.text)
    assert plain.num_trees() == 30
    np.testing.assert_allclose(plain.predict(xor[0].values, raw_score=True), made.predict(xor[0])[:, 0], rtol=1e-12)


def test_remembered_predictions_are_those_from_the_beginning_bit_by_bit(xor):
    rows, labels = xor
    bound, free = model(), model()
    bound.bind(rows)
    for each in (bound, free):
        learn(each, rows, labels, passes=3)
    np.testing.assert_array_equal(bound.predict(rows), free.predict(rows))
    np.testing.assert_array_equal(bound.predict(rows, 7, 90), free.predict(rows)[7:90])
    state = bound.state()
    learn(bound, rows, labels)
    bound.restore(state)
    np.testing.assert_array_equal(bound.predict(rows), free.predict(rows))


@pytest.mark.parametrize("count", [5, 900])
def test_rows_that_point_to_stored_ones_are_predicted_as_those(xor, count):
    made = learn(model(), *xor)
    pointers = np.random.default_rng(3).integers(-1, ROWS, count)
    found = made.predict(PointedRows(xor[0], pointers))
    expected = np.where(pointers[:, None] < 0, 0.0, made.predict(xor[0])[pointers])
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_several_classes_have_a_tree_each(xor):
    rows, _ = xor
    labels = np.digitize(rows.values[:, 0], [-0.5, 0.5]).astype(np.float64)
    made = learn(model(width=3), rows, labels, objective=objective_for("softmax", 3), passes=3)
    assert (made.predict(rows).argmax(axis=1) == labels).mean() > 0.97


def test_a_regression_comes_close_to_its_target(xor):
    rows, _ = xor
    target = np.sin(2 * rows.values[:, 0]).astype(np.float64)
    made = learn(model(), rows, target, objective=objective_for("squared", 0), passes=4)
    assert np.mean((made.predict(rows)[:, 0] - target) ** 2) < 0.1 * target.var()


def test_rows_of_weight_zero_teach_nothing(xor):
    rows, labels = xor
    count = len(labels)
    whole = BlockUpdate(0, np.arange(count), np.array([0, count]), np.array([0.3]))
    nothing = np.zeros((count, 1), np.float32)
    weights = np.where(np.arange(count) < 200, 1.0, 0.0)
    wrong = np.where(weights > 0, labels, 1 - labels)
    one, other = model(), model()
    for each, given in ((one, labels), (other, wrong)):
        each.learn(rows, whole, Scores(nothing, nothing, given, weights, 1.0, LOGISTIC))
    np.testing.assert_array_equal(one.predict(rows), other.predict(rows))


def test_constant_features_and_no_features_leave_the_model_as_it_is():
    flat = DenseRows(np.ones((50, 2), np.float32))
    assert not learn(model(inputs=2), flat, np.ones(50)).predict(flat).any()
    none = DenseRows(np.zeros((50, 0), np.float32))
    assert not learn(model(inputs=0), none, np.ones(50)).predict(none).any()


def test_a_rate_of_zero_adds_no_tree(xor):
    assert learn(model(), *xor, rate=0.0).text == ""


def test_contributions_add_up_to_the_prediction(xor):
    made = learn(model(precision="double"), *xor, passes=2)
    found = made.contributions(xor[0])
    assert found.shape == (ROWS, 1, 4)
    np.testing.assert_allclose(found.sum(axis=2), made.predict(xor[0]), rtol=1e-9, atol=1e-12)
    assert np.abs(found[:, 0, 2]).mean() < 0.3 * np.abs(found[:, 0, 0]).mean()
    assert not model().contributions(xor[0]).any()


def test_leaves_are_few_unless_there_are_many_rows(xor):
    def most(made):
        return max(line.count(" ") for line in made.text.splitlines() if line.startswith("leaf_value=")) + 1

    noise = np.random.default_rng(4).integers(0, 2, ROWS).astype(np.float64)
    assert most(learn(model(min_rows=1), xor[0], noise)) == 15
    assert most(learn(model(min_rows=1, leaves=40), xor[0], noise)) == 40


def test_gains_are_of_the_features_that_matter(xor):
    gains = learn(model(), *xor, passes=2).state()["gains"]
    assert min(gains[0], gains[1]) > 3 * gains[2]


def test_other_threads_predict_the_same(xor):
    made = learn(model(), *xor)
    twin = model(threads=2)
    twin.restore(made.state())
    np.testing.assert_array_equal(twin.predict(xor[0]), made.predict(xor[0]))


def test_texts_are_joined_in_order_and_read(xor):
    one, other = (learn(model(trees=trees, passes=1), *xor).text for trees in (3, 5))
    both = joined([one, other])
    assert lightgbm.Booster(model_str=both).num_trees() == 8
    assert joined([both]) == both
    np.testing.assert_array_equal(leaf_values(both), np.concatenate([leaf_values(one), leaf_values(other)]))
    np.testing.assert_allclose(split_gains(both, 3), split_gains(one, 3) + split_gains(other, 3))
    assert not len(leaf_values(""))


def test_noise_in_training_is_refused():
    noisy = DpSgd(clip=0.5, sigma=0.3, key=NoiseKey(b"a secret"))
    with pytest.raises(SettingsError, match=r"'trees', and .guard.training. knows no way to clip it"):
        model(dp_sgd=noisy)


def test_an_update_rule_is_refused_and_categories_of_tables_are_filled_in():
    with pytest.raises(SettingsError, match="optimizer"):
        model_settings("trees", optimizer="adam")
    assert with_native(model_settings("trees"), NativeFeatures(0, (1, 3))).categories == (1, 3)
    assert with_native(model_settings("linear"), NativeFeatures(0, (1, 3))) == model_settings("linear")
