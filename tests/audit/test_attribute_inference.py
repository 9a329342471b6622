"""A6: guessing a binary attribute of unknown rows."""

import numpy as np
import pytest

from fdml.audit.attribute_inference import Gains, binary_columns, gains

ROWS, KNOWN = 400, 150


def matrix_of(columns):
    return np.stack(columns, axis=1).astype(float)


def test_binary_columns_are_those_of_two_values_that_are_not_too_rare():
    half, quarter = np.arange(ROWS) % 2, np.arange(ROWS) % 4 == 0
    rare = np.arange(ROWS) == 0
    three = np.arange(ROWS) % 3
    constant = np.ones(ROWS)
    assert binary_columns(matrix_of([rare, quarter, three, constant, half, 5 - 3.0 * half])) == [4, 5, 1]


def test_the_most_evenly_spread_come_first_and_no_more_than_eleven():
    columns = [np.arange(ROWS) % 20 < share for share in range(2, 18)]
    found = binary_columns(matrix_of(columns))
    assert len(found) == 11
    assert found[0] == 8, "ten of twenty"


@pytest.fixture(scope="module")
def attribute():
    chance = np.random.default_rng(0)
    hidden = chance.normal(size=ROWS)
    return hidden, (hidden > 0).astype(float)[:, None]


def own_inputs():
    return np.random.default_rng(1).normal(size=(ROWS, 2))


def test_what_tells_the_attribute_gives_a_gain(attribute):
    hidden, features = attribute
    aided = np.hstack([own_inputs(), hidden[:, None] + 0.3 * np.random.default_rng(2).normal(size=(ROWS, 1))])
    found = gains(features, [0], own_inputs(), [aided], KNOWN, 0)
    assert found.without[0] < 0.65
    assert found.having[0] > 0.9
    assert found.mean == found.worst == pytest.approx(found.having[0] - found.without[0])


def test_what_tells_nothing_gives_none(attribute):
    _, features = attribute
    noise = np.hstack([own_inputs(), np.random.default_rng(3).normal(size=(ROWS, 3))])
    assert abs(gains(features, [0], own_inputs(), [noise], KNOWN, 0).mean) < 0.1


def test_the_aided_guess_is_only_taken_where_it_does_better_on_the_known_rows(attribute):
    hidden, features = attribute
    own = np.hstack([own_inputs(), hidden[:, None]])
    noise = np.random.default_rng(4).normal(size=(ROWS, 1))
    found = gains(features, [0], own, [noise], KNOWN, 0)
    assert found.mean == 0.0
    assert found.without[0] > 0.95


def test_an_attribute_that_the_known_rows_all_share_is_left_out():
    features = np.zeros((ROWS, 2))
    features[:, 0] = np.arange(ROWS) % 2
    features[np.random.default_rng(0).permutation(ROWS)[KNOWN:], 1] = 1.0
    assert len(gains(features, [0, 1], own_inputs(), [own_inputs()], KNOWN, 0).having) == 1


def test_the_same_seed_gives_the_same_figures(attribute):
    hidden, features = attribute
    aided = np.hstack([own_inputs(), hidden[:, None]])
    first, second, other = (gains(features, [0], own_inputs(), [aided], KNOWN, seed) for seed in (1, 1, 2))
    assert (first.without[0], first.having[0]) == (second.without[0], second.having[0])
    assert first.without[0] != other.without[0]


def test_the_mean_and_the_worst_gain_are_over_all_attributes():
    found = Gains(np.array([0.5, 0.6]), np.array([0.9, 0.7]))
    assert (found.mean, found.worst) == (pytest.approx(0.25), pytest.approx(0.4))
