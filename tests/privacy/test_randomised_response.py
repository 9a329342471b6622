"""Randomised response: as many labels are moved as epsilon asks for, each once and for all."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.privacy.randomised_response import DRAW_BYTES, chance_of_truth, draws_of, randomised

MANY = 40_000


def labels(classes, rows=MANY):
    return np.random.default_rng(1).integers(0, classes, rows).astype(np.float64)


def draws(seed=1, rows=MANY):
    return draws_of(np.random.default_rng([9, seed]).integers(0, 256, (rows, DRAW_BYTES), np.uint8))


def within(count, total, chance, sigmas=4.0):
    return abs(count - total * chance) < sigmas * math.sqrt(total * chance * (1 - chance))


@given(st.floats(0.01, 20.0), st.integers(2, 50))
def test_a_label_is_kept_with_the_chance_that_epsilon_gives(epsilon, classes):
    grown = math.exp(epsilon)
    assert chance_of_truth(epsilon, classes) == pytest.approx(grown / (grown + classes - 1))


def test_an_epsilon_however_large_keeps_all_and_none_however_small_hides_all():
    assert chance_of_truth(5000.0, 3) == 1.0
    assert chance_of_truth(1e-12, 4) == pytest.approx(0.25)


@given(st.floats(0.01, 20.0), st.integers(2, 50))
def test_no_answer_is_more_than_e_to_the_epsilon_times_as_likely_for_one_truth_as_for_another(epsilon, classes):
    truth = chance_of_truth(epsilon, classes)
    other = (1.0 - truth) / (classes - 1)
    assert truth / other <= math.exp(epsilon) * (1 + 1e-6)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_the_share_of_kept_labels_is_as_promised_in_every_class(classes, epsilon):
    true = labels(classes)
    shown = randomised(true, classes, epsilon, draws())
    chance = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    assert within((shown == true).sum(), MANY, chance)
    for each in range(classes):
        mine = true == each
        assert within((shown[mine] == each).sum(), mine.sum(), chance)


@pytest.mark.parametrize("classes", [3, 5])
def test_a_moved_label_goes_to_each_of_the_others_alike(classes):
    true = labels(classes)
    shown = randomised(true, classes, 1.0, draws())
    for each in range(classes):
        moved = shown[(true == each) & (shown != each)]
        for other in set(range(classes)) - {each}:
            assert within((moved == other).sum(), len(moved), 1 / (classes - 1))


@pytest.mark.parametrize("classes", [2, 5])
def test_what_is_shown_is_a_class_of_the_task(classes):
    shown = randomised(labels(classes), classes, 0.1, draws())
    assert shown.dtype == np.float64
    assert set(shown) == set(range(classes))


def test_the_same_draws_show_the_same_labels_and_others_do_not():
    """More draws of one label would give it away."""
    true = labels(3)
    first = randomised(true, 3, 1.0, draws())
    np.testing.assert_array_equal(randomised(true, 3, 1.0, draws()), first)
    assert (randomised(true, 3, 1.0, draws(seed=2)) != first).any()


def test_draws_are_uniform_and_never_0_or_1():
    ends = np.array([[0] * DRAW_BYTES, [255] * DRAW_BYTES], np.uint8)
    assert (draws_of(ends) > 0).all()
    assert (draws_of(ends) < 1).all()
    for column in draws().T:
        assert within((column < 0.3).sum(), MANY, 0.3)


def test_whether_a_label_moves_does_not_depend_on_the_others():
    true = labels(2)
    shown = randomised(true, 2, 1.0, draws())
    flipped = true.copy()
    flipped[::2] = 1.0 - flipped[::2]
    moved = randomised(flipped, 2, 1.0, draws())
    np.testing.assert_array_equal(moved[1::2], shown[1::2])
    np.testing.assert_array_equal(moved[::2], 1.0 - shown[::2])


def test_rows_move_independently_of_each_other():
    true = labels(2)
    moved = (randomised(true, 2, 1.0, draws()) != true).astype(float)
    for apart in (1, 2, MANY // 2):
        assert abs(np.corrcoef(moved[:-apart], moved[apart:])[0, 1]) < 4.5 / math.sqrt(MANY - apart)


def test_the_labels_given_are_left_as_they_are_and_none_are_none():
    true = labels(2)
    before = true.copy()
    randomised(true, 2, 0.1, draws())
    np.testing.assert_array_equal(true, before)
    assert randomised(np.zeros(0), 2, 1.0, draws(rows=0)).shape == (0,)
