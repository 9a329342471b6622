"""Noisy predictions of the others are read as what they are expected to be, with an honest word on how far off that is."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.data.rows import as_rows
from fdml.party.denoising import denoise, probit_scale
from tests.examples import examples

ROWS = 5000
FINITE = st.floats(-100.0, 100.0)


def features_of(random, width=12, rows=ROWS):
    """Mostly zeros, and not around zero, as one-hot columns are."""
    return random.random((rows, width)) * (random.random((rows, width)) < 0.4)


def truth_of(random, features, explained):
    """The others' predictions: a share `explained` of their variance follows from the features, the rest is their own."""
    count, width = features.shape
    known = features @ random.normal(size=width) if width else np.zeros(count)
    known = (known - known.mean()) / (known.std() or 1.0)
    own = random.normal(size=count)
    return -1.5 + 1.2 * (math.sqrt(explained) * known + math.sqrt(1.0 - explained) * own)


def denoised_of(seed=0, explained=0.5, sigma=3.0, width=12, columns=1):
    """True values, noisy ones, and the denoised ones."""
    random = np.random.default_rng(seed)
    features = features_of(random, width)
    truth = np.column_stack([truth_of(random, features, explained) for _ in range(columns)])
    noisy = truth + sigma * random.normal(size=truth.shape)
    return truth, noisy, denoise(noisy, sigma**2, as_rows(features))


def error(values, truth):
    return float(np.mean(np.square(values - truth)))


@given(arrays(np.float64, st.tuples(st.integers(0, 20), st.integers(1, 3)), elements=FINITE))
def test_values_without_noise_are_taken_as_they_are(values):
    found = denoise(values, 0.0, as_rows(np.ones((len(values), 2))))
    assert found.values is values
    assert found.variance == 0.0


def test_a_single_row_shows_nothing_of_the_others_and_stays():
    found = denoise(np.array([[2.0]]), 9.0, as_rows(np.ones((1, 2))))
    assert found.values[0, 0] == 2.0
    assert found.variance == 9.0


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("explained", [0.0, 0.5, 1.0], ids=["features explain nothing", "half", "features explain all"])
@pytest.mark.parametrize("seed", range(3))
def test_a_denoised_value_is_nearer_to_the_truth_than_the_noise_and_than_a_constant(seed, explained, sigma):
    truth, noisy, found = denoised_of(seed, explained, sigma)
    assert error(found.values, truth) < 0.9 * error(noisy, truth)
    assert error(found.values, truth) < error(noisy.mean(), truth)


def test_where_noise_hides_all_denoising_still_costs_less_than_a_plain_regression():
    """Nothing can be seen here: a constant would be best, and only the truth would show that."""
    sigma, ours, plain = 10.0, [], []
    for seed in range(20):
        truth, noisy, found = denoised_of(seed, explained=0.0, sigma=sigma)
        known = np.column_stack([features_of(np.random.default_rng(seed)), np.ones(ROWS)])
        ours.append(error(found.values, truth))
        plain.append(error(known @ np.linalg.lstsq(known, noisy, rcond=None)[0], truth))
        assert ours[-1] < 0.05 * error(noisy, truth)
    assert np.mean(ours) < np.mean(plain)


@pytest.mark.parametrize("explained", [0.0, 0.5])
@pytest.mark.parametrize("sigma", [0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_variance_it_states_is_how_far_it_is_off(seed, explained, sigma):
    truth, _, found = denoised_of(seed, explained, sigma)
    assert found.variance == pytest.approx(error(found.values, truth), rel=0.15)


@pytest.mark.parametrize("explained", [0.0, 0.5])
def test_under_strong_noise_the_stated_variance_is_right_on_average(explained):
    """Noise of 9 on 5,000 rows leaves the others' own variance uncertain by .18, so one found may be off by more."""
    runs = [denoised_of(seed, explained, sigma=3.0) for seed in range(20)]
    true = np.mean([error(found.values, truth) for truth, _, found in runs])
    assert np.mean([found.variance for _, _, found in runs]) == pytest.approx(true, rel=0.15)


@given(st.integers(0, 2**32), st.floats(0.0, 1.0), st.floats(0.1, 10.0))
@examples(30)
def test_the_stated_variance_is_off_by_no_more_than_noise_leaves_uncertain(seed, explained, sigma):
    truth, _, found = denoised_of(seed, explained, sigma)
    uncertain = sigma**2 * math.sqrt(2 / ROWS)  # a standard error of any variance behind this noise
    assert 0.0 < found.variance < sigma**2
    assert abs(found.variance - error(found.values, truth)) < 6 * uncertain


def test_each_output_is_read_by_itself():
    random = np.random.default_rng(1)
    rows = as_rows(features_of(random))
    noisy = random.normal(size=(ROWS, 3)) * [1.0, 2.0, 4.0] + [0.0, -3.0, 5.0]
    together = denoise(noisy, 0.8, rows)
    apart = [denoise(noisy[:, k : k + 1], 0.8, rows) for k in range(3)]
    np.testing.assert_allclose(together.values, np.hstack([each.values for each in apart]))
    assert together.variance == pytest.approx(np.mean([each.variance for each in apart]))


def test_several_outputs_are_nearer_to_the_truth_too():
    truth, noisy, found = denoised_of(sigma=1.0, columns=3)
    assert np.all(np.mean(np.square(found.values - truth), axis=0) < 0.9 * np.mean(np.square(noisy - truth), axis=0))
    assert found.variance == pytest.approx(error(found.values, truth), rel=0.15)


SMALL = st.integers(2, 30).flatmap(
    lambda count: st.tuples(
        st.integers(0, 6).flatmap(
            lambda width: arrays(np.float32, (count, width), elements=st.sampled_from([0, 0, 1, -2]))
        ),
        arrays(np.float64, (count, 1), elements=FINITE),
    )
)


@given(SMALL, st.floats(0.01, 100.0))
@settings(deadline=None)
def test_dense_and_sparse_features_explain_the_same(given_rows, variance):
    features, noisy = given_rows
    dense = denoise(noisy, variance, as_rows(features))
    sparse = denoise(noisy, variance, as_rows(sp.csr_array(features)))
    np.testing.assert_allclose(dense.values, sparse.values, rtol=1e-6, atol=1e-6)
    assert dense.variance == pytest.approx(sparse.variance, rel=1e-5)


@given(SMALL, st.floats(0.01, 100.0), FINITE)
@settings(deadline=None)
def test_whatever_comes_a_reading_is_numbers_and_moves_as_the_values_move(given_rows, variance, offset):
    features, noisy = given_rows
    found = denoise(noisy, variance, as_rows(features))
    moved = denoise(noisy + offset, variance, as_rows(features))
    assert np.all(np.isfinite(found.values))
    assert 0.0 < found.variance < variance
    np.testing.assert_allclose(moved.values, found.values + offset, rtol=1e-6, atol=1e-6)
    assert moved.variance == pytest.approx(found.variance, rel=1e-6)


def test_of_a_wide_party_the_features_that_vary_most_are_asked():
    random = np.random.default_rng(3)
    values = random.normal(size=(2000, 1224)) * (random.random((2000, 1224)) < 0.03)
    values[:, 1024:] *= 0.01
    order = random.permutation(1224)
    truth = truth_of(random, values[:, :10], explained=1.0)[:, None]
    noisy = truth + random.normal(size=truth.shape)
    wide = values[:, order]
    found = denoise(noisy, 1.0, as_rows(sp.csr_array(wide)))
    asked = denoise(noisy, 1.0, as_rows(sp.csr_array(wide[:, order < 1024])))
    np.testing.assert_allclose(found.values, asked.values)
    assert found.variance == asked.variance
    assert error(found.values, truth) < min(error(noisy, truth), error(noisy.mean(), truth))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_without_features_values_are_drawn_to_their_mean(kind):
    random = np.random.default_rng(4)
    truth = random.normal(-1.0, 1.5, (ROWS, 1))
    noisy = truth + random.normal(size=truth.shape)
    found = denoise(noisy, 1.0, as_rows(kind(np.zeros((ROWS, 0)))))
    drawn = (found.values - noisy.mean()) / (noisy - noisy.mean())
    np.testing.assert_allclose(drawn, drawn[0, 0])
    assert drawn[0, 0] == pytest.approx(1.5**2 / (1.5**2 + 1.0), rel=0.05)
    assert found.variance == pytest.approx(error(found.values, truth), rel=0.15)


def test_features_that_never_vary_explain_nothing():
    random = np.random.default_rng(5)
    noisy = random.normal(size=(ROWS, 1))
    flat = denoise(noisy, 0.5, as_rows(np.full((ROWS, 3), 7.0)))
    none = denoise(noisy, 0.5, as_rows(np.zeros((ROWS, 0))))
    np.testing.assert_allclose(flat.values, none.values, atol=1e-6)


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_trust_falls_as_variance_grows(one, other):
    less, more = sorted((one, other))
    assert probit_scale(0.0) == 1.0
    assert 0.0 < probit_scale(more) <= probit_scale(less) <= 1.0


@pytest.mark.parametrize("variance", [0.5, 3.0, 25.0])
@pytest.mark.parametrize("score", [-4.0, -1.0, 0.0, 2.0])
def test_a_trusted_score_gives_the_chance_behind_a_blurred_one(score, variance):
    blur = math.sqrt(variance) * np.random.default_rng(6).normal(size=200_000)
    chance = np.mean(1 / (1 + np.exp(-(score + blur))))
    assert 1 / (1 + math.exp(-probit_scale(variance) * score)) == pytest.approx(chance, abs=0.02)
