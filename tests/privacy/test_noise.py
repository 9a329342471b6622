"""Random bits of a party: the same for the same name, unrelated for any other, and never shown."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fdml.privacy.noise import NoiseKey

KEY = NoiseKey(bytes(range(32)))


@given(st.lists(st.integers(0, 100), max_size=8), st.integers(0, 2**64 - 1))
def test_bits_taken_in_pieces_are_those_taken_at_once(pieces, number):
    bits = KEY.bits("tried", number)
    assert b"".join(map(bits.take, pieces)) == KEY.stream("tried", number, sum(pieces))


def test_words_are_the_same_bits_little_endian():
    words = KEY.bits("tried", 3).words(5)
    assert words.dtype == np.dtype("<u8")
    assert words.tobytes() == KEY.stream("tried", 3, 40)


def test_bits_of_another_name_are_unrelated():
    streams = [KEY.stream(purpose, number, 64) for purpose in ("one", "two") for number in (0, 1)]
    streams.append(NoiseKey(b"k" * 32).stream("one", 0, 64))
    assert len(set(streams)) == 5


def test_numbers_of_one_draw_do_not_run_into_those_of_the_next():
    """A megabyte of number 0 has no block of number 1."""
    blocks = np.frombuffer(KEY.stream("tried", 0, 1 << 20), "V16")
    assert KEY.stream("tried", 1, 16) not in {block.tobytes() for block in blocks}


def test_the_secret_is_not_shown():
    assert repr(KEY) == "NoiseKey()"
