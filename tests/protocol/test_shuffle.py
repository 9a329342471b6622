import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.protocol.shuffle import permutation, permutation_of_runs, stream

MASK = 2**64 - 1


def plain_permutation(size, *key):
    """SplitMix64 and Fisher-Yates as in their papers, in Python's unbounded integers."""
    state = stream(*key)
    order = list(range(size))
    for last in range(size - 1, 0, -1):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        bits = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
        bits ^= bits >> 31
        other = ((bits >> 32) * (last + 1)) >> 32
        order[last], order[other] = order[other], order[last]
    return order


def test_the_stream_never_changes():
    """Parties with different versions must draw the same orders; these values may not be edited."""
    assert stream(7, "x") == 5637302936959684857
    assert permutation(10, 7, "rows", 0, 0, 0).tolist() == [9, 6, 7, 2, 4, 5, 1, 8, 0, 3]
    assert permutation(5, 7, "blocks", 1).tolist() == [2, 0, 3, 4, 1]


@given(st.integers(0, 200), st.integers(0, 2**63 - 1), st.text(max_size=5))
def test_the_compiled_order_equals_plain_python(size, seed, word):
    assert permutation(size, seed, word).tolist() == plain_permutation(size, seed, word)


@given(st.integers(0, 300), st.integers(0, 2**63 - 1))
def test_every_number_comes_once(size, seed):
    order = permutation(size, seed)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(size))


def test_every_part_of_the_key_matters():
    keys = [(7, "rows", 1, 2), (8, "rows", 1, 2), (7, "blocks", 1, 2), (7, "rows", 2, 1), (7, "rows", 12)]
    assert len({stream(*key) for key in keys}) == len(keys)
    assert len({tuple(permutation(20, *key).tolist()) for key in keys}) == len(keys)


def test_all_orders_are_equally_likely():
    """Chi-square over the 24 orders of 4; 23 degrees of freedom, so above 60 once in 40,000 seeds."""
    draws = 6000
    orders, counts = np.unique([permutation(4, seed, "chi") for seed in range(draws)], axis=0, return_counts=True)
    assert len(orders) == 24
    assert np.square(counts - draws / 24).sum() / (draws / 24) < 60


@pytest.mark.parametrize("place", [0, 49, 99])
def test_any_number_may_stand_at_any_place_of_a_long_order(place):
    seen = np.array([permutation(100, seed, "far")[place] for seed in range(3000)])
    assert len(np.unique(seen)) == 100
    assert abs(seen.mean() - 49.5) < 3


@given(st.integers(0, 300), st.integers(1, 20), st.integers(0, 2**63 - 1))
def test_in_an_order_of_runs_neighbours_stay_together(size, run, seed):
    order = permutation_of_runs(size, run, seed, "rows")
    runs = [
        list(range(first * run, min(first * run + run, size))) for first in permutation(-(-size // run), seed, "rows")
    ]
    assert order.dtype == np.int64
    assert order.tolist() == [number for each in runs for number in each]
