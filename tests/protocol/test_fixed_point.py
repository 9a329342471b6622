import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.protocol.fixed_point import (
    FIXED_POINTS,
    INT64,
    LARGEST,
    NARROW,
    decode,
    encode,
    encode_within,
    grid_of,
    largest_size,
    limit_others,
    pack40,
    replace_own_part,
    size_of,
    unpack40,
)
from tests.protocol.codes import LARGEST_CODE

in_range = arrays(np.float64, st.integers(0, 20), elements=st.floats(-LARGEST, LARGEST))
on_the_grid = arrays(np.int64, st.integers(0, 20), elements=st.integers(-LARGEST_CODE, LARGEST_CODE))


@given(in_range)
def test_a_value_comes_back_to_half_a_step_of_the_grid(values):
    assert np.abs(decode(encode(values)) - values).max(initial=0.0) <= 2.0**-33


@given(on_the_grid)
def test_what_is_on_the_grid_comes_back_exactly(codes):
    np.testing.assert_array_equal(encode(decode(codes)), codes)


@given(arrays(np.float32, 8, elements=st.floats(-1024, 1024, width=32)))
def test_single_precision_is_not_rounded_twice(values):
    np.testing.assert_array_equal(encode(values), encode(values.astype(np.float64)))


@given(arrays(np.int64, st.integers(0, 40), elements=st.integers(-(2**39), 2**39 - 1)))
def test_codes_of_40_bits_travel_in_five_bytes_and_come_back_exactly(codes):
    raw = pack40(codes.reshape(-1, 1))
    assert len(raw) == NARROW * len(codes)
    np.testing.assert_array_equal(unpack40(raw), codes, strict=True)


@given(arrays(np.int64, 4, elements=st.integers(-(2**39), 2**39 - 1)), st.integers(0, 3), st.integers(2**39, 2**63 - 1))
def test_one_code_that_needs_more_than_40_bits_lets_none_travel_in_five_bytes(codes, place, large):
    for one in (large, -large - 1):
        codes[place] = one
        assert pack40(codes) is None


@given(
    st.lists(in_range.filter(lambda values: len(values) >= 4).map(lambda values: values[:4]), max_size=6), st.randoms()
)
def test_a_sum_does_not_depend_on_its_order(parts, random):
    codes = [encode(part) for part in parts]
    mixed = random.sample(codes, len(codes))
    np.testing.assert_array_equal(sum(codes, np.zeros(4, np.int64)), sum(mixed, np.zeros(4, np.int64)))


def test_sums_of_floats_would_depend_on_it():
    """Why sums are made in whole numbers."""
    floats = [1e16, 1.0, -1e16]
    assert sum(floats) != sum([floats[0], floats[2], floats[1]])


@pytest.mark.parametrize("bits", FIXED_POINTS)
@given(data=st.data())
def test_on_every_grid_a_value_comes_back_to_half_a_step_and_its_codes_are_of_its_type(bits, data):
    grid = FIXED_POINTS[bits]
    most = grid.largest(3)
    values = data.draw(arrays(np.float64, 6, elements=st.floats(-most, most)))
    codes = encode(values, grid)
    assert codes.dtype == grid.dtype == np.dtype(f"int{bits}")
    assert np.abs(decode(codes) - values).max() <= 2.0 ** -(grid.fraction_bits + 1) * (1 + 1e-3), (
        "float32 carries 16 bits"
    )
    assert np.abs(codes.astype(np.int64)).max() <= grid.largest_code(3)


@pytest.mark.parametrize("bits", FIXED_POINTS)
@pytest.mark.parametrize("parties", [1, 2, 3, 100])
def test_the_largest_values_of_all_parties_have_a_sum_that_fits(bits, parties):
    grid = FIXED_POINTS[bits]
    most = grid.largest_code(parties)
    assert most > 0
    assert parties * most <= np.iinfo(grid.dtype).max
    assert grid.largest(parties) == most * 2.0**-grid.fraction_bits


def test_two_thousand_parties_can_be_summed_without_overflow():
    assert int(np.iinfo(np.int64).max) >= (2**11 - 1) * LARGEST_CODE


@pytest.mark.parametrize(("value", "code"), [(1.0, 2**32), (-0.5, -(2**31)), (2.0**-32, 1), (2.0**-34, 0)])
def test_the_format_on_the_wire_is_fixed(value, code):
    assert (INT64.fraction_bits, LARGEST, LARGEST_CODE) == (32, 2.0**20, 2**52)
    assert encode(np.array([value])).tolist() == [code]


@pytest.mark.parametrize("bits", FIXED_POINTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_past_the_bound_or_no_number_is_not_encoded(bits, dtype):
    bound = 5.0
    values = np.linspace(-bound, bound, 101, dtype=dtype).reshape(-1, 1)
    np.testing.assert_array_equal(encode_within(values, FIXED_POINTS[bits], bound), encode(values, FIXED_POINTS[bits]))
    for place in (0, 50, 100):
        for wrong in (np.nan, np.inf, -np.inf, 5.001, -5.001):
            spoiled = values.copy()
            spoiled[place] = wrong
            assert encode_within(spoiled, FIXED_POINTS[bits], bound) is None


@pytest.mark.parametrize("bits", FIXED_POINTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_one_part_of_a_total_can_be_made_exact(bits, dtype, data):
    grid, most = FIXED_POINTS[bits], FIXED_POINTS[bits].largest(2)
    part = arrays(np.float64, (5, 2), elements=st.floats(-most / 2, most / 2))
    mine, others = (data.draw(part).astype(dtype) for _ in range(2))
    codes = encode(mine, grid)
    total = codes + encode(others, grid)
    expected = (decode(total - codes) + mine).astype(dtype)
    found = replace_own_part(total, codes, mine)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_a_sum_that_began_again_gives_the_same_part_back():
    """Codes of masked sums go round in the ring of their type."""
    codes = np.array([30_000], np.int16)
    total = codes + np.array([10_000], np.int16)
    assert total[0] < 0
    assert replace_own_part(total, codes, np.array([1.0]))[0] == 1.0 + 10_000 * 2.0**-9


@pytest.mark.parametrize(
    ("bits", "step", "largest"), [(64, 2.0**-32, 2.0**20), (32, 2.0**-20, 2048.0), (16, 2.0**-9, 64.0)]
)
def test_every_grid_has_its_step_and_its_range(bits, step, largest):
    grid = FIXED_POINTS[bits]
    assert decode(np.array([1], grid.dtype))[0] == step
    assert grid.largest(1) == pytest.approx(largest, rel=2.0**-14)
    assert grid.saturates == (bits == 16)


@pytest.mark.parametrize("bits", [32, 16])
def test_on_narrow_grids_more_parties_leave_less_room_for_each(bits):
    grid = FIXED_POINTS[bits]
    room = [grid.largest(parties) for parties in (1, 2, 5, 100)]
    assert room == sorted(room, reverse=True)
    assert len(set(room)) == 4


def test_the_bound_itself_may_travel_and_a_larger_neighbour_not():
    bound = INT64.largest(2)
    assert encode_within(np.array([bound, -bound]), INT64, bound).tolist() == [LARGEST_CODE, -LARGEST_CODE]
    assert encode_within(np.array([np.nextafter(bound, np.inf)]), INT64, bound) is None


def test_nothing_is_encoded_packed_and_unpacked_as_nothing():
    none = np.zeros(0)
    assert encode(none).size == 0
    assert pack40(encode(none)) == b""
    assert unpack40(b"").dtype == np.int64


@given(
    arrays(np.int64, 6, elements=st.integers(-(2**63), 2**63 - 1)),
    arrays(np.int64, 6, elements=st.integers(-(2**52), 2**52)),
    st.integers(0, 2**54),
)
def test_others_are_limited_as_by_plain_numpy(total, own, most):
    others = total - own
    limited, largest = limit_others(total, own, most)
    np.testing.assert_array_equal(limited - own, np.clip(others, -most, most))
    assert largest == np.abs(others.astype(np.float64)).max() * 2.0**-32
    assert (limited is total) == (np.abs(others.astype(np.float64)).max() <= most)


@pytest.mark.parametrize("bits", FIXED_POINTS)
def test_a_run_may_have_a_largest_prediction_below_what_fits(bits):
    grid = grid_of(bits, 3.0)
    assert grid.largest(2) == 3.0
    assert grid_of(bits, 1e9).largest(2) == FIXED_POINTS[bits].largest(2)
    assert grid_of(bits) is FIXED_POINTS[bits]


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.int16])
def test_the_largest_size_is_that_of_the_code_farthest_from_zero(kind):
    lowest = np.iinfo(kind).min
    assert largest_size(np.array([[3, -7], [5, 0]], kind)) == 7.0
    assert largest_size(np.array([lowest, 1], kind)) == -float(lowest)
    assert largest_size(np.zeros(0, kind)) == 0.0


@given(on_the_grid)
def test_a_size_is_the_prediction_of_its_code(codes):
    assert size_of(largest_size(codes), codes.dtype) == np.abs(decode(codes)).max(initial=0.0)


FIRST_CALL = """
import numpy as np
from numba.core.typing.typeof import typeof_impl
from fdml.protocol.fixed_point import largest_size
before = list(typeof_impl.registry)
assert largest_size(np.zeros(0)) == 0.0
print(set(typeof_impl.registry) - set(before))
"""


@pytest.mark.slow
def test_the_first_call_teaches_numba_no_type_that_another_thread_could_meet():
    """A party whose stream brought a total while its model was compiled ended by `dictionary changed size`."""
    found = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
