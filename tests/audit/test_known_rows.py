"""A4: solving for unknown rows from known ones."""

import numpy as np
import pytest

from fdml.audit.known_rows import combined, components, explained, standardised

ROWS = 200


@pytest.fixture
def features():
    return np.random.default_rng(0).normal(size=(ROWS, 3))


def known(count=60):
    return np.random.default_rng(1).permutation(ROWS)[:count]


def test_inputs_that_determine_the_features_explain_all_of_them(features):
    inputs = features @ np.random.default_rng(2).normal(size=(3, 5))
    assert explained(known(), [inputs], features) > 0.999


def test_inputs_that_know_nothing_explain_nothing(features):
    noise = np.random.default_rng(3).normal(size=(ROWS, 4))
    assert abs(explained(known(), [noise], features)) < 0.1


def test_the_inputs_that_do_best_on_the_known_rows_are_taken(features):
    noise = np.random.default_rng(3).normal(size=(ROWS, 4))
    right = features + 0.1 * np.random.default_rng(4).normal(size=features.shape)
    both = explained(known(), [noise, right], features)
    assert both == explained(known(), [right], features) > 0.9


@pytest.mark.parametrize("inputs", [np.zeros((ROWS, 0)), np.ones((ROWS, 2))])
def test_without_anything_to_go_by_the_mean_is_guessed(features, inputs):
    assert abs(explained(known(), [inputs], features)) < 0.05


def test_the_known_rows_themselves_do_not_count(features):
    """An attack that only repeats what it knows has explained nothing."""
    inputs = np.zeros((ROWS, 1))
    inputs[known()] = features[known(), :1]
    assert explained(known(), [inputs], features) < 0.2


def test_components_are_the_main_ones_first_each_of_variance_one():
    chance = np.random.default_rng(5)
    strong, weak = chance.normal(size=(2, ROWS))
    seen = np.stack([10 * strong, 10 * strong + weak, 10 * strong - weak], axis=1)[:, :, None]
    found = components(seen)
    assert found.shape == (ROWS, 2), "the third column follows from the two others"
    np.testing.assert_allclose(found.std(axis=0), 1.0, rtol=1e-6)
    assert abs(np.corrcoef(found[:, 0], strong)[0, 1]) > 0.99
    assert abs(np.corrcoef(found[:, 1], weak)[0, 1]) > 0.9


def test_columns_are_standardised_and_constant_ones_become_zero():
    values = np.stack([np.arange(4.0), np.full(4, 7.0)], axis=1)
    found = standardised(values)
    np.testing.assert_allclose(found[:, 0].mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(found[:, 0].std(), 1.0)
    np.testing.assert_array_equal(found[:, 1], 0.0)


def test_own_features_come_alone_first_and_then_beside_what_the_run_gives():
    chance = np.random.default_rng(6)
    own, seen = chance.normal(size=(ROWS, 2)), chance.normal(size=(ROWS, 4, 1))
    offers = list(combined(own, seen, None))
    np.testing.assert_allclose(offers[0], standardised(own))
    widths = [each.shape[1] - 2 for each in offers[1:]]
    assert widths == [1, 1, 3, 3, 4, 4], "of 1, 3, 10 and 30 components those that there are, and all; twice each"
    np.testing.assert_allclose(offers[2][:, 2:], 5 * offers[1][:, 2:])
    recovered = chance.normal(size=(ROWS, 6))
    longer = list(combined(own, seen, recovered))
    assert len(longer) == len(offers) + 2
    np.testing.assert_allclose(longer[-2][:, 2:], standardised(recovered))
