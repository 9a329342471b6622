import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.protocol.bit_packing import in_ring, pack_bits, packed_size, unpack_bits

widths = st.integers(2, 16)


@st.composite
def numbers(draw):
    """Numbers that fit into so many bits, and how many bits these are."""
    bits = draw(widths)
    half = 2 ** (bits - 1)
    values = draw(st.lists(st.integers(-half, half - 1), max_size=40))
    return np.array(values, np.int16), bits


@given(numbers())
def test_numbers_come_back_from_as_few_bytes_as_hold_them(drawn):
    codes, bits = drawn
    raw = pack_bits(codes, bits)
    assert len(raw) == packed_size(len(codes), bits) == (len(codes) * bits + 7) // 8
    np.testing.assert_array_equal(unpack_bits(raw, len(codes), bits), codes)


@given(st.lists(st.integers(-(2**15), 2**15 - 1), max_size=40), widths)
def test_any_number_comes_back_as_it_is_in_the_ring(values, bits):
    codes = np.array(values, np.int16)
    found = unpack_bits(pack_bits(codes, bits), len(codes), bits)
    np.testing.assert_array_equal(found, in_ring(codes, bits))
    half = 2 ** (bits - 1)
    assert [(value + half) % 2**bits - half for value in values] == found.tolist()


def test_the_lowest_bits_come_first():
    assert pack_bits(np.array([1, -1, 3], np.int16), 4).hex() == "f103"
    assert pack_bits(np.array([1, -1, 0, 1], np.int16), 2).hex() == "4d"
    assert pack_bits(np.array([[1], [2]], np.int16), 5).hex() == "4100", "a table goes row by row"


@given(numbers(), st.integers(-3, 3).filter(bool))
def test_bytes_of_another_number_of_numbers_are_none(drawn, more):
    codes, bits = drawn
    raw, count = pack_bits(codes, bits), len(codes) + more
    found = unpack_bits(raw, count, bits) if count >= 0 else None
    assert found is None or packed_size(count, bits) == len(raw)


@pytest.mark.parametrize(("raw", "count", "bits"), [("f113", 3, 4), ("ff", 3, 2), ("ff", 1, 5)])
def test_a_bit_to_spare_that_is_set_is_none(raw, count, bits):
    """So there is one way only to write the same numbers."""
    assert unpack_bits(bytes.fromhex(raw), count, bits) is None
