"""Rows as kernels read them, in every form they are stored in."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.data.rows import drop_unit_values, take
from fdml.models.kernels.gradients import LONGEST, clip_factor
from fdml.models.kernels.rows import BinaryRows, entries, entry, kernel_view, prefetch, square_norm
from tests.models.random_updates import Shape, random_features, stored


@numba.njit
def as_matrix(rows, count, width):
    out = np.zeros((count, width))
    for row in range(count):
        prefetch(rows, row)
        for place in entries(rows, row):
            feature, value = entry(rows, row, place)
            out[row, feature] += value
    return out


@numba.njit
def square_norms(rows, count):
    out = np.zeros(count)
    for row in range(count):
        out[row] = square_norm(rows, row)
    return out


@numba.njit
def factor(inputs, square, limit):
    return clip_factor(inputs, square, limit)


FORMS = ["sparse", "dense", "ones"]


def rows_of(x, form):
    return kernel_view(drop_unit_values(stored(x, "sparse")) if form == "ones" else stored(x, form))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.builds(Shape, rows=st.integers(1, 9), width=st.integers(1, 40), start=st.just(0)),
)
def test_every_form_of_the_same_rows_has_the_same_entries(form, seed, shape):
    x = random_features(np.random.default_rng(seed), shape)
    if form == "ones":
        x = (x > 0).astype(np.float32)
    np.testing.assert_array_equal(as_matrix(rows_of(x, form), *x.shape), x)
    np.testing.assert_allclose(square_norms(rows_of(x, form), len(x)), np.square(x.astype(np.float64)).sum(axis=1))


def test_rows_of_ones_are_read_without_their_values():
    ones = stored(np.eye(4, dtype=np.float32), "sparse")
    assert isinstance(kernel_view(drop_unit_values(ones)), BinaryRows)
    assert kernel_view(ones) is ones
    twos = ones._replace(values=ones.values * 2)
    assert kernel_view(drop_unit_values(twos)) is twos


def test_rows_without_an_entry_have_the_form_of_the_rows_that_they_are_taken_from():
    """Another form would be compiled for them, which takes seconds."""
    twos = stored(2 * np.eye(4, dtype=np.float32), "sparse")
    none = stored(np.zeros((2, 4), np.float32), "sparse")
    for rows in (none, take(none, np.array([1])), take(twos, np.array([], np.int64)), drop_unit_values(none)):
        assert numba.typeof(kernel_view(rows)) == numba.typeof(kernel_view(twos))


@given(st.floats(0.0, 1e20), st.floats(1e-6, 1e6))
def test_a_clipped_gradient_is_no_longer_than_the_limit_and_a_short_one_stays(square, limit):
    found = factor(1.0, square, limit)
    assert found * np.sqrt(square) <= limit * (1.0 + 1e-12)
    assert 0.0 < found <= 1.0
    if square <= limit * limit:
        assert found == 1.0


@pytest.mark.parametrize(
    ("inputs", "square"), [(np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (1.0, np.inf), (4 * LONGEST**2, 1.0)]
)
def test_a_row_too_long_to_be_clipped_is_left_out(inputs, square):
    assert factor(inputs, square, 1.0) == 0.0
