"""A message in pieces is the same message, and is refused as soon as it is too long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.limits import PIECE
from fdml.transport.pieces import Assembly, check_length, pieces

lengths = st.one_of(
    st.integers(0, 100), st.sampled_from([PIECE - 1, PIECE, PIECE + 1, 2 * PIECE - 1, 2 * PIECE, 2 * PIECE + 1])
)


def content(size):
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@given(st.lists(lengths, max_size=4))
def test_messages_in_pieces_come_back_one_by_one(sizes):
    assembly = Assembly()
    for size in sizes:
        *before, last = pieces(content(size))
        assert all(assembly.add(piece) is None for piece in before)
        assert assembly.add(last) == content(size)
        assert assembly.size == 0


@given(lengths)
def test_no_piece_is_longer_than_may_travel_and_only_the_last_is_shorter(size):
    *before, last = pieces(content(size))
    assert all(len(piece) == PIECE for piece in before)
    assert len(last) < PIECE


def test_a_short_message_travels_as_it_is():
    raw = b"message"
    assert next(pieces(raw)) is raw
    assert Assembly().add(raw) is raw


def test_a_message_under_way_has_the_size_of_what_has_come():
    assembly = Assembly()
    assembly.add(bytes(PIECE))
    assembly.add(bytes(PIECE))
    assert assembly.size == 2 * PIECE


def test_what_is_too_long_is_refused_with_who_sent_it():
    check_length(1024, 1024, "party 'bob'")
    with pytest.raises(MessageRefused, match="party 'bob' sent a message of 1025 bytes or more; here") as refused:
        check_length(1025, 1024, "party 'bob'")
    assert refused.value.refusal is Refusal.TOO_LARGE
