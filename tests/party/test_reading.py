"""Noisy predictions of the others are read as what they are expected to be, with an honest word on how far off that is."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.data.rows import as_rows
from fdml.party.reading import read_noisy, trust

ROWS = 5000
FINITE = st.floats(-100.0, 100.0)


def features_of(random, width=12, rows=ROWS):
    """Mostly zeros, and not around zero, as one-hot columns are."""
    return random.random((rows, width)) * (random.random((rows, width)) < 0.4)


def truth_of(random, features, told):
    """The others' predictions: a share `told` of their variance follows from the features, the rest is their own."""
    count, width = features.shape
    known = features @ random.normal(size=width) if width else np.zeros(count)
    known = (known - known.mean()) / (known.std() or 1.0)
    own = random.normal(size=count)
    return -1.5 + 1.2 * (math.sqrt(told) * known + math.sqrt(1.0 - told) * own)


def read_of(seed=0, told=0.5, sigma=3.0, width=12, outputs=1):
    """Truth, noisy values and their reading."""
    random = np.random.default_rng(seed)
    features = features_of(random, width)
    truth = np.column_stack([truth_of(random, features, told) for _ in range(outputs)])
    noisy = truth + sigma * random.normal(size=truth.shape)
    return truth, noisy, read_noisy(noisy, sigma**2, as_rows(features))


def error(values, truth):
    return float(np.mean(np.square(values - truth)))


@given(arrays(np.float64, st.tuples(st.integers(0, 20), st.integers(1, 3)), elements=FINITE))
def test_values_without_noise_are_taken_as_they_are(values):
    reading = read_noisy(values, 0.0, as_rows(np.ones((len(values), 2))))
    assert reading.values is values
    assert reading.variance == 0.0


def test_a_single_row_tells_nothing_of_the_others_and_stays():
    reading = read_noisy(np.array([[2.0]]), 9.0, as_rows(np.ones((1, 2))))
    assert reading.values[0, 0] == 2.0
    assert reading.variance == 9.0


@pytest.mark.parametrize("sigma", [0.5, 3.0, 10.0])
@pytest.mark.parametrize("told", [0.0, 0.5, 1.0], ids=["features tell nothing", "half", "features tell all"])
def test_a_reading_is_nearer_to_the_truth_than_the_noise_and_than_a_constant(told, sigma):
    truth, noisy, reading = read_of(told=told, sigma=sigma)
    found = error(reading.values, truth)
    assert found < error(noisy, truth)
    assert found <= error(np.full_like(truth, noisy.mean()), truth) * (1.0 if told or sigma < 10 else 1.02)


@pytest.mark.parametrize("told", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_the_variance_it_states_is_how_far_it_is_off(told, sigma):
    truth, _, reading = read_of(told=told, sigma=sigma)
    assert reading.variance == pytest.approx(error(reading.values, truth), rel=0.15)
