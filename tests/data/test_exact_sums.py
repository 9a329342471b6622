import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.exact_sums import ExactMoments, ExactSum

numbers = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100)


def moments(*batches):
    found = ExactMoments()
    for batch in batches:
        found.add(np.array(batch, np.float64))
    return found


@given(st.lists(numbers, max_size=30))
def test_a_sum_is_exact(values):
    found = ExactSum()
    found.add(np.array(values, np.float64))
    exact = sum((Fraction(value) for value in values), Fraction(0))
    assert Fraction(found.scaled, 2 ** (1074 + 53)) == exact


@given(st.lists(moderate, min_size=1, max_size=30))
def test_mean_and_variance_are_rounded_once(values):
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    variance = sum((value - mean) ** 2 for value in exact) / len(exact)
    found = moments(values)
    assert found.mean == float(mean)
    assert found.variance == float(variance)


@given(st.lists(moderate, min_size=1, max_size=30), st.randoms(use_true_random=False), st.integers(0, 30))
def test_neither_the_order_nor_the_batches_change_a_bit(values, random, cut):
    mixed = random.sample(values, len(values))
    one, other = moments(values), moments(mixed[:cut], mixed[cut:])
    assert (one.mean, one.variance) == (other.mean, other.variance)


def test_a_small_spread_far_from_zero_is_found():
    values = np.random.default_rng(1).normal(1.4e9, 1e-3, 1000)
    assert moments(values).variance == pytest.approx(np.var(values - 1.4e9), rel=1e-9)


def test_the_same_number_many_times_is_as_if_added_one_by_one():
    one, other = moments([1.5, 0.1]), moments([1.5, 0.1], [0.1] * 7)
    one.add_repeated(0.1, 7)
    assert (one.count, one.mean, one.variance) == (other.count, other.mean, other.variance)


def test_of_no_numbers_all_is_zero_and_of_too_large_ones_the_variance_is_infinite():
    assert (moments().count, moments().mean, moments().variance) == (0, 0.0, 0.0)
    assert moments([1e200, -1e200]).variance == math.inf
    assert moments([1e200, 1e200]).mean == 1e200


@given(st.lists(st.lists(numbers, max_size=10), max_size=6))
def test_merged_moments_are_those_of_all_numbers(parts):
    merged = ExactMoments()
    for part in parts:
        merged.merge(json.loads(json.dumps(moments(part).state())))
    whole = moments([value for part in parts for value in part])
    assert (merged.count, merged.mean, merged.variance) == (whole.count, whole.mean, whole.variance)
