"""What every loss must pass."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.errors import SettingsError
from fdml.models.kernels.gradients import loss_gradient, loss_gradients
from fdml.models.losses import LOSSES, loss_named
from fdml.protocol.fixed_point import decode, encode
from fdml.settings.choices import LARGEST_LOG, PRIVATE_LOSSES
from tests.examples import examples
from tests.models.random_updates import CLASSES_OF, WIDTH_OF, random_labels

NAMES = list(CLASSES_OF)
"""All that there are, and a quantile that is not the median."""


@numba.njit
def kernel_gradients(code, scores, labels, out):
    for row in range(len(scores)):
        loss_gradient(code, scores[row], labels[row], out[row])


@numba.njit
def kernel_gradients_together(code, scores, labels, shares):
    loss_gradients(code, scores, labels, shares, np.empty(len(scores), np.int32))


def drawn_scores(data, name):
    shape = (data.draw(st.integers(1, 5)), WIDTH_OF[name])
    return data.draw(arrays(np.float64, shape, elements=st.floats(-1000, 1000)))


def labels_for(data, name, rows):
    return random_labels(np.random.default_rng(data.draw(st.integers(0, 99))), rows, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_has_a_score_for_each_class_or_one(name):
    assert loss_named(name).scores(CLASSES_OF[name]) == (CLASSES_OF[name] if name == "softmax" else 1)


def test_the_codes_are_distinct():
    assert len({loss_named(name).code for name in NAMES}) == len(NAMES)


def test_every_loss_is_tested_here():
    """But for that of pairs: its rows are logistic ones, and its groups are in tests/models/ranking."""
    assert {*NAMES, "pairwise"} >= set(LOSSES)


def off_the_kinks(name, scores, labels, shift):
    """A slope is defined beside a kink, and where exp ends it is known only roughly."""
    if name == "hinge":
        margin = (2 * labels - 1) * scores[:, 0]
        scores[np.abs(margin - 1) <= 2 * shift] += 0.01
    elif name.startswith("quantile"):
        scores[np.abs(scores[:, 0] - labels) <= 2 * shift] += 0.01
    elif name == "poisson":
        scores[np.abs(scores[:, 0] - LARGEST_LOG) <= 2 * shift] += 0.01
    return scores


@pytest.mark.parametrize("name", NAMES)
@examples(50)
@given(data=st.data())
def test_the_gradient_is_the_slope_of_the_value(name, data):
    loss = loss_named(name)
    scores, shift = drawn_scores(data, name), 1e-4
    labels = labels_for(data, name, len(scores))
    scores = off_the_kinks(name, scores, labels, shift)
    gradient = loss.gradient(scores, labels)
    assert gradient.shape == scores.shape
    for k in range(scores.shape[1]):
        up, down = scores.copy(), scores.copy()
        up[:, k] += shift
        down[:, k] -= shift
        slope = (loss.value(up, labels) - loss.value(down, labels)) / (2 * shift)
        np.testing.assert_allclose(gradient[:, k], slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@examples(50)
@given(data=st.data())
def test_the_kernels_gradient_is_the_same(name, data):
    scores = drawn_scores(data, name)
    labels = labels_for(data, name, len(scores))
    out = np.full_like(scores, np.nan)
    kernel_gradients(loss_named(name).code, scores, labels, out)
    np.testing.assert_allclose(out, loss_named(name).gradient(scores, labels), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_gradient_is_the_same_close_to_the_margin(name, label):
    scores = np.zeros((401, WIDTH_OF[name]))
    scores[:, 0] = np.arange(-200, 201) / 100
    labels, out = np.full(401, label), np.empty_like(scores)
    kernel_gradients(loss_named(name).code, scores, labels, out)
    np.testing.assert_allclose(out, loss_named(name).gradient(scores, labels), rtol=1e-12, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "tolerance"), [(np.float32, 3e-7), (np.float64, 1e-14)])
@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("name", [name for name in NAMES if WIDTH_OF[name] == 1])
def test_the_kernels_gradients_of_many_rows_are_the_same_times_their_shares(name, label, kind, tolerance):
    """Relative to the gradient itself, so also where a row is nearly learned; the steps leave no binade out."""
    scores = np.concatenate([np.linspace(-90, 90, 20_011), np.linspace(-1.5, 1.5, 501), [-1e30, 1e30]]).astype(kind)
    shares = np.linspace(0.5, 2.0, len(scores)).astype(kind)
    labels = np.full(len(scores), label, kind)
    exact = loss_named(name).gradient(scores[:, None].astype(np.float64), labels.astype(np.float64))[:, 0]
    found = scores.copy()
    kernel_gradients_together(loss_named(name).code, found, labels, shares)
    expected = exact * shares.astype(np.float64)
    floor = np.finfo(np.float32).tiny if label == 0.0 else np.finfo(kind).eps
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=4 * floor)


@pytest.mark.parametrize("name", NAMES)
def test_scores_however_large_give_finite_values_and_gradients(name):
    loss = loss_named(name)
    for size in (-1e6, 1e6):
        scores = np.zeros((2, WIDTH_OF[name]), np.float32)
        scores[:, 0] = size
        labels = np.array([0.0, 1.0])
        assert np.isfinite(loss.value(scores, labels)).all()
        assert np.isfinite(loss.gradient(scores, labels)).all()


@pytest.mark.parametrize("name", NAMES)
@examples(50)
@given(data=st.data())
def test_values_are_never_negative_and_one_per_row(name, data):
    scores = drawn_scores(data, name)
    value = loss_named(name).value(scores, labels_for(data, name, len(scores)))
    assert value.shape == (len(scores),)
    assert (value >= 0).all()


@pytest.mark.parametrize("name", [name for name in NAMES if CLASSES_OF[name] == 0])
@pytest.mark.parametrize("seed", range(5))
def test_no_other_constant_has_less_loss_than_the_one_that_a_regression_loss_names(name, seed):
    loss, random = loss_named(name), np.random.default_rng(seed)
    labels, weights = random_labels(random, 40, name), random.uniform(0.0, 2.0, 40)

    def total(constant):
        return weights @ loss.value(np.full((40, 1), constant), labels)

    best = loss.constant(labels, weights)
    assert all(total(best) <= total(best + move) + 1e-12 for move in (-1.0, -0.1, -1e-3, 1e-3, 0.1, 1.0))


@pytest.mark.parametrize("name", ["squared", "poisson", "softmax", "logistic"])
def test_curvatures_are_the_slope_of_the_gradient(name):
    loss, random, shift = loss_named(name), np.random.default_rng(4), 1e-5
    scores, labels = random.normal(size=(20, WIDTH_OF[name])), random_labels(random, 20, name)
    found = loss.curvatures(scores, labels)
    for k in range(scores.shape[1]):
        up, down = scores.copy(), scores.copy()
        up[:, k] += shift
        down[:, k] -= shift
        slope = (loss.gradient(up, labels) - loss.gradient(down, labels))[:, k] / (2 * shift)
        np.testing.assert_allclose(found[:, k], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["logistic", "squared", "softmax"])
def test_the_curvature_bounds_the_second_derivative_and_is_reached(name):
    """Steepest for two classes of equal score along their difference, or at the score of even odds."""
    loss, shift = loss_named(name), 1e-4
    direction = {1: np.array([1.0]), 3: np.array([1.0, -1.0, 0.0]) / np.sqrt(2)}[WIDTH_OF[name]]
    steepest = {1: np.array([0.0]), 3: np.array([0.0, 0.0, -50.0])}[WIDTH_OF[name]]

    def bend(at, along):
        ends = [loss.gradient((at + sign * shift * along)[None], np.zeros(1))[0] @ along for sign in (1, -1)]
        return (ends[0] - ends[1]) / (2 * shift)

    assert bend(steepest, direction) == pytest.approx(loss.curvature, rel=1e-5)
    random = np.random.default_rng(1)
    for _ in range(100):
        along = random.normal(size=len(direction))
        assert bend(3 * random.normal(size=len(direction)), along / np.linalg.norm(along)) <= loss.curvature + 1e-6


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_probabilities_sum_to_one_and_the_value_is_minus_their_logarithm(name):
    loss = loss_named(name)
    random = np.random.default_rng(2)
    scores = random.normal(size=(20, WIDTH_OF[name]))
    labels = random_labels(random, 20, name)
    probability = loss.probability(scores)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    chosen = probability[np.arange(20), labels.astype(int)]
    np.testing.assert_allclose(loss.value(scores, labels), -np.log(chosen), rtol=1e-9)


def test_some_values_worked_out_by_hand():
    one, zero = np.array([1.0]), np.array([0.0])
    at = np.array([[0.5]])
    assert LOSSES["hinge"].value(at, one) == pytest.approx(0.5)
    assert LOSSES["hinge"].value(at, zero) == pytest.approx(1.5)
    assert LOSSES["hinge"].gradient(np.array([[1.0]]), one) == 0.0
    assert LOSSES["squared"].value(np.array([[3.0]]), one) == pytest.approx(2.0)
    assert LOSSES["logistic"].value(np.array([[0.0]]), one) == pytest.approx(np.log(2))
    assert LOSSES["softmax"].value(np.zeros((1, 4)), one) == pytest.approx(np.log(4))
    assert LOSSES["poisson"].value(np.array([[np.log(2.0)]]), one) == pytest.approx(1.0 - np.log(2.0))
    assert LOSSES["poisson"].value(np.zeros((1, 1)), one) == 0.0
    assert loss_named("quantile(0.9)").value(np.array([[3.0]]), one) == pytest.approx(0.2)
    assert loss_named("quantile(0.9)").value(np.array([[-1.0]]), one) == pytest.approx(1.8)
    assert LOSSES["quantile"].value(at, one) == pytest.approx(0.25)


# What a gradient shows.


def tame_scores(data, name):
    """So that no chance is lost in the grid on which gradients travel."""
    shape = (data.draw(st.integers(1, 5)), WIDTH_OF[name])
    return data.draw(arrays(np.float64, shape, elements=st.floats(-8, 8)))


def up_to_a_constant(scores):
    return scores - scores.mean(axis=1, keepdims=True) if scores.shape[1] > 1 else scores


@pytest.mark.parametrize("name", sorted({*PRIVATE_LOSSES} & {*NAMES}))
@examples(100)
@given(data=st.data())
def test_a_gradient_gives_away_score_and_label(name, data):
    loss, scores = loss_named(name), tame_scores(data, name)
    labels = labels_for(data, name, len(scores))
    found, shown = loss.invert_gradient(loss.gradient(scores, labels))
    np.testing.assert_array_equal(shown, labels)
    np.testing.assert_allclose(up_to_a_constant(found), up_to_a_constant(scores), atol=1e-6)


@pytest.mark.parametrize("name", ["logistic", "softmax", "squared"])
@examples(100)
@given(data=st.data())
def test_what_a_gradient_is_inverted_to_has_that_gradient(name, data):
    """However large the scores: where a chance is too small to differ from none, so is the difference."""
    loss, scores = loss_named(name), drawn_scores(data, name)
    gradient = loss.gradient(scores, labels_for(data, name, len(scores)))
    before = gradient.copy()
    found, shown = loss.invert_gradient(gradient)
    np.testing.assert_array_equal(gradient, before)
    assert (found.shape, shown.shape) == (scores.shape, (len(scores),))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(loss.gradient(found, shown), gradient, atol=WIDTH_OF[name] * 2.0**-32, rtol=1e-9)


@pytest.mark.parametrize("name", ["logistic", "softmax", "squared"])
@examples(100)
@given(data=st.data())
def test_a_gradient_that_travelled_is_inverted_as_well(name, data):
    """Rounded to the grid, it may even end a step past 0 or 1."""
    loss, scores = loss_named(name), drawn_scores(data, name)
    gradient = loss.gradient(scores, labels_for(data, name, len(scores)))
    steps = np.array(data.draw(st.lists(st.integers(-1, 1), min_size=gradient.size, max_size=gradient.size)))
    travelled = decode(encode(gradient)) + steps.reshape(gradient.shape) * 2.0**-32
    found, shown = loss.invert_gradient(travelled)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(loss.gradient(found, shown), gradient, atol=4 * WIDTH_OF[name] * 2.0**-32)


@pytest.mark.parametrize(
    ("name", "way_out"), [("hinge", "use logistic"), ("poisson", "share the labels"), ("quantile", "share the labels")]
)
def test_a_gradient_that_shows_too_little_to_learn_from_is_refused(name, way_out):
    with pytest.raises(SettingsError, match=rf"the gradient of {name} \(3 rows\) does not show scores; {way_out}"):
        LOSSES[name].invert_gradient(np.zeros((3, 1)))


def test_private_labels_are_offered_only_for_losses_that_can_be_inverted_and_randomised():
    assert set(PRIVATE_LOSSES) == {"logistic", "softmax", "pairwise"}
