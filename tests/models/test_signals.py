import numpy as np
import pytest

from fdml.models.objective import objective_for
from fdml.models.signals import NO_ROWS, BlockUpdate, Gradients, Scores, no_scores
from tests.models.random_updates import CLASSES_OF, DTYPES, random_labels, random_update

BLOCK = BlockUpdate(4, np.array([2, 0, 4, 1, 3]), np.array([0, 2, 4, 5]), np.array([0.3, 0.2, 0.1]))


def test_a_batch_is_a_part_of_the_order():
    assert [BLOCK.batch(number).tolist() for number in range(3)] == [[2, 0], [4, 1], [3]]


def test_one_batch_alone_has_its_rows_and_its_rate():
    alone = BLOCK.only(1)
    assert (alone.start, alone.order.tolist(), alone.batch_bounds.tolist(), alone.rates.tolist()) == (
        4, [4, 1], [0, 2], [0.2]
    )  # fmt: skip
    assert alone.batch(0).tolist() == [4, 1]


def test_the_pass_without_a_batch_has_no_rows():
    assert (len(NO_ROWS.order), len(NO_ROWS.rates)) == (0, 0)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("loss", CLASSES_OF)
def test_the_signal_for_no_rows_has_the_shape_and_type_that_a_model_expects(loss, precision):
    objective = objective_for(loss, CLASSES_OF[loss])
    found = no_scores(objective, np.dtype(DTYPES[precision]))
    assert found.total.shape == found.own_at_push.shape == (0, objective.width)
    assert found.total.dtype == DTYPES[precision]
    assert found.objective is objective


# Scores


@pytest.mark.parametrize("loss", CLASSES_OF)
def test_the_gradient_is_that_of_the_total_moved_by_the_echo(loss):
    random = np.random.default_rng(1)
    _, signal = random_update(random, loss, "double", echo=3.0)
    rows = np.array([5, 0, 7])
    own = random.normal(size=(3, signal.objective.width))
    moved = signal.total[rows] + 3.0 * (own - signal.own_at_push[rows])
    expected = signal.objective.loss.gradient(moved, signal.labels[rows]) * signal.weights[rows, None]
    np.testing.assert_allclose(signal.gradient(rows, own), expected, rtol=1e-12)


def test_a_party_that_has_not_moved_sees_the_total_as_it_came():
    random = np.random.default_rng(2)
    _, signal = random_update(random, "logistic", "double", echo=5.0)
    rows = np.arange(4)
    still = signal.gradient(rows, signal.own_at_push[rows])
    exact = signal.objective.gradient(signal.total[rows], signal.labels[rows]) * signal.weights[rows, None]
    np.testing.assert_array_equal(still, exact)


def test_scores_are_their_own_scores():
    _, signal = random_update(np.random.default_rng(3), "squared", "single")
    assert signal.scores is signal


# Gradients of private labels


def made_of(loss, noise=0.0, rows=12):
    """The gradient that a label party would return, and what it was made of."""
    random = np.random.default_rng(4)
    objective = objective_for(loss, CLASSES_OF[loss])
    labels = random_labels(random, rows, loss)
    own = random.normal(size=(rows, objective.width))
    others = random.normal(size=(rows, objective.width))
    pushed = own + noise * random.normal(size=own.shape)
    gradient = objective.gradient(others + pushed, labels)
    return Gradients(gradient, pushed, own, np.ones(rows), 2.0, objective), others, labels


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_a_gradient_shows_the_label_and_the_others_part(loss):
    signal, others, labels = made_of(loss)
    found = signal.scores
    np.testing.assert_array_equal(found.labels, labels)
    total = others + signal.own_at_push
    if loss == "softmax":  # scores of classes are known up to what all have in common
        total, shown = (each - each.mean(axis=1, keepdims=True) for each in (total, found.total))
    else:
        shown = found.total
    np.testing.assert_allclose(shown, total, atol=1e-6)


@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_the_partys_own_part_is_put_back_exactly_where_the_guard_had_changed_it(noise):
    signal, others, _ = made_of("logistic", noise)
    np.testing.assert_allclose(signal.scores.total, others + signal.own_at_push, atol=1e-5)


def test_the_scores_behind_a_gradient_are_computed_once():
    signal, _, _ = made_of("logistic")
    assert signal.scores is signal.scores


def test_scores_have_the_precision_of_the_model():
    signal, _, _ = made_of("logistic")
    single = Gradients(
        signal.gradient, signal.pushed, signal.own_at_push.astype(np.float32), signal.weights, 2.0, signal.objective
    )
    assert single.scores.total.dtype == np.float32
    assert isinstance(single.scores, Scores)
    assert single.scores.echo == 2.0
