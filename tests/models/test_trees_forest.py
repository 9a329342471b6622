"""Trees by their formulas: leaves and gains worked out in plain numpy, and what their cases at the edges do."""

import numpy as np
import pytest

from fdml.data.rows import DenseRows, PointedRows, plain_rows
from fdml.models.kind import ModelSpec
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings
from fdml.models.signals import BlockUpdate, Scores
from tests.models.random_updates import CLASSES_OF, WIDTH_OF, random_labels

COUNT, RATE, L2, ECHO = 60, 0.3, 0.02, 2.0
SIDE = np.arange(COUNT) % 3 == 0
SIDES = DenseRows(SIDE[:, None].astype(np.float32))
"""One feature of two values: a tree has a leaf for either."""
LOSSES = [loss for loss in CLASSES_OF if loss != "hinge"]


def model(inputs=1, width=1, passes=1, **values):
    settings = model_settings("trees", **{"trees": 1, "l2": L2, "min_rows": 1, "precision": "double", **values})
    return build_model(settings, ModelSpec(inputs, width, True, (3, "model"), passes=passes))


def whole(count=COUNT, rates=(RATE,)):
    bounds = np.linspace(0, count, len(rates) + 1).astype(int)
    return BlockUpdate(0, np.arange(count), bounds, np.array(rates))


def signal(loss="logistic", count=COUNT, seed=1):
    random, width = np.random.default_rng(seed), WIDTH_OF[loss]
    total, own = random.normal(size=(2, count, width))
    labels, weights = random_labels(random, count, loss), random.uniform(0.5, 1.5, count)
    return Scores(total, own, labels, weights, ECHO, objective_for(loss, CLASSES_OF[loss]))


def features(seed=2, count=COUNT, inputs=3):
    return np.random.default_rng(seed).normal(size=(count, inputs)).astype(np.float32)


def of_sides(loss):
    """The first score of one side is above that of the other, so that there is a split to gain by."""
    scores = signal(loss)
    scores.total[:, 0] += np.where(SIDE, 2.0, -2.0)
    return scores


def slopes(scores, own):
    """Gradient and curvature of each row at the score that the echo rule says."""
    total = scores.total + scores.echo * (own - scores.own_at_push)
    weights = scores.weights[:, None]
    return (
        scores.objective.gradient(total, scores.labels) * weights,
        scores.objective.curvatures(total, scores.labels) * weights,
    )


def squared(gradient, curvature):
    """G^2 / (H + l2 rows), by score, which a leaf lowers the loss by, but for half of it."""
    return gradient.sum(axis=0) ** 2 / (curvature.sum(axis=0) + L2 * COUNT)


def gain(gradient, curvature):
    """Of the split by side: the leaves apart less the leaf together."""
    apart = sum(squared(gradient[each], curvature[each]) for each in (SIDE, ~SIDE))
    return apart - squared(gradient, curvature)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_leaf_is_a_newton_step_and_later_trees_see_the_ones_before(loss):
    """-rate G / (H + l2 rows), tree by tree; a score whose split would gain nothing stays as it is."""
    scores, made = of_sides(loss), model(width=WIDTH_OF[loss], trees=3)
    made.learn(SIDES, whole(), scores)
    own = np.zeros((COUNT, WIDTH_OF[loss]))
    for _ in range(3):
        gradient, curvature = slopes(scores, own)
        grown, steps = gain(gradient, curvature) > 0.0, np.zeros_like(own)
        for each in (SIDE, ~SIDE):
            steps[each] = RATE * gradient[each].sum(axis=0) / (curvature[each].sum(axis=0) + L2 * COUNT)
        own = own - np.where(grown, steps, 0.0)
    assert own.any()
    np.testing.assert_allclose(made.predict(SIDES), own, rtol=1e-5, atol=1e-7)


def test_the_gain_of_a_split_is_how_much_larger_the_squared_sums_are_apart_than_together():
    scores, made = of_sides("squared"), model(inputs=2)
    made.learn(DenseRows(np.column_stack([np.ones(COUNT), SIDE]).astype(np.float32)), whole(), scores)
    expected = gain(*slopes(scores, np.zeros((COUNT, 1))))
    np.testing.assert_allclose(made.state()["gains"], [0.0, *expected], rtol=1e-4)


def test_the_penalty_is_half_l2_times_the_squared_leaves():
    made = model()
    assert made.penalty() == 0.0
    made.learn(SIDES, whole(), of_sides("logistic"))
    leaves = np.unique(made.predict(SIDES))
    assert len(leaves) == 2
    assert made.penalty() == pytest.approx(0.5 * L2 * np.square(leaves).sum(), rel=1e-9)


def told(labels):
    """Of rows that no other party says anything about."""
    nothing = np.zeros((len(labels), 1))
    return Scores(nothing, nothing, labels, np.ones(len(labels)), 1.0, objective_for("logistic", 2))


@pytest.mark.parametrize("like", [0.0, 1.0])
def test_a_missing_number_goes_where_rows_without_it_belong(like):
    values = np.repeat([1.0, 2.0, np.nan], 20).astype(np.float32)[:, None]
    labels = np.where(np.isnan(values[:, 0]), like, values[:, 0] > 1.5).astype(np.float64)
    made = model(leaves=2)
    made.learn(DenseRows(values), whole(), told(labels))
    low, high, missing = made.predict(DenseRows(values))[[0, 20, 40], 0]
    assert low < 0.0 < high
    assert missing == (high if like else low)


def test_other_numbers_of_the_same_categories_give_the_same_predictions():
    random = np.random.default_rng(5)
    numbers, names = random.integers(0, 12, 300), random.permutation(12)
    labels = (random.random(300) < np.linspace(0.1, 0.9, 12)[random.permutation(12)][numbers]).astype(np.float64)

    def found(codes, **values):
        rows = DenseRows(codes[:, None].astype(np.float32))
        made = model(trees=5, leaves=3, **values)
        made.learn(rows, whole(300), told(labels))
        return made.predict(rows)

    np.testing.assert_allclose(found(numbers, categories=(0,)), found(names[numbers], categories=(0,)), rtol=1e-9)
    assert not np.allclose(found(numbers), found(names[numbers])), "as numbers they have an order"


def test_a_category_that_was_never_seen_is_predicted_as_a_missing_one():
    codes = np.repeat([0.0, 1.0, 2.0, np.nan], 15).astype(np.float32)[:, None]
    made = model(trees=4, categories=(0,))
    made.learn(DenseRows(codes), whole(), told((codes[:, 0] == 1.0).astype(np.float64)))
    new, missing, known = made.predict(DenseRows(np.array([[77.0], [np.nan], [1.0]], np.float32)))[:, 0]
    assert new == missing < 0.0 < known


@pytest.mark.parametrize(
    ("trees", "passes", "ends"), [(1, 10, [1, 2]), (45, 4, [11, 22]), (7, 2, [4, 8]), (6, 1, [6, 12])]
)
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_a_pass_has_its_share_of_the_trees_rounded_and_never_none(trees, passes, ends, loss):
    made, rows = model(3, WIDTH_OF[loss], passes, trees=trees, leaves=3), DenseRows(features())
    for _ in ends:
        made.learn(rows, whole(), signal(loss))
    assert made.state()["ends"].tolist() == ends
    assert made.text.count("Tree=") == ends[-1] * WIDTH_OF[loss]


@pytest.mark.parametrize("count", [1, 2, 9])
def test_rows_too_few_to_split_teach_nothing_and_later_ones_all(count):
    few, rows = DenseRows(features(count=count)), DenseRows(features())
    made, fresh = model(3, trees=4, min_rows=5), model(3, trees=4, min_rows=5)
    made.learn(few, whole(count), signal(count=count))
    assert not made.predict(rows).any()
    assert not made.state()["gains"].any()
    assert made.penalty() == 0.0
    for each in (made, fresh):
        each.learn(rows, whole(), signal())
    assert fresh.predict(rows).any()
    np.testing.assert_array_equal(made.predict(rows), fresh.predict(rows))


def test_the_order_of_rows_does_not_matter_and_the_step_is_the_mean_of_the_batches():
    rows, scores = DenseRows(features()), signal()
    one, other = model(3, trees=5), model(3, trees=5)
    mixed = whole(rates=(0.1, 0.5))._replace(order=np.random.default_rng(6).permutation(COUNT))
    one.learn(rows, whole(rates=(0.3,)), scores)
    other.learn(rows, mixed, scores)
    assert one.text == other.text


def test_a_block_teaches_what_its_rows_alone_do():
    values, block, alone = features(), model(3, trees=5), model(3, trees=5)
    own = DenseRows(values[30:50].copy())
    values[:30], values[50:] = np.nan, 1e6
    for seed in (1, 2):
        alone.learn(own, whole(20), signal(count=20, seed=seed))
        block.learn(DenseRows(values), whole(20)._replace(start=30), signal(count=20, seed=seed))
    assert block.text == alone.text
    assert block.state()["ends"].tolist() == [5, 10]


@pytest.mark.parametrize("count", [5, 900], ids=["fewer than stored", "more than stored"])
def test_remembered_rows_are_predicted_to_the_bit_however_long_ago_they_were_asked_for(count):
    rows = DenseRows(features())
    pointed = PointedRows(rows, np.random.default_rng(7).integers(-1, COUNT, count))
    often, once, free = (model(3, passes=6, trees=18) for _ in range(3))
    for each in (often, once):
        each.bind(pointed)
    for number in range(6):
        for each in (often, once, free):
            each.learn(rows, whole(), signal(seed=number))
        often.predict(pointed)
        if number == 1:
            once.predict(pointed)
    expected = np.where(pointed.pointers[:, None] < 0, 0.0, free.predict(plain_rows(pointed)))
    for each in (often, once, free):
        assert each.predict(pointed).tobytes() == expected.tobytes()


def test_a_restored_forest_is_the_same_text_and_grows_on_alike():
    rows, made, twin = DenseRows(features()), model(3, trees=4), model(3, trees=4)
    made.learn(rows, whole(), signal())
    twin.restore({name: np.array(array.tolist(), array.dtype) for name, array in made.state().items()})
    assert (twin.text, twin.penalty()) == (made.text, made.penalty())
    for each in (made, twin):
        each.learn(rows, whole(), signal(seed=8))
    assert twin.text == made.text
    np.testing.assert_array_equal(twin.state()["gains"], made.state()["gains"])
    np.testing.assert_array_equal(twin.contributions(rows), made.contributions(rows))
