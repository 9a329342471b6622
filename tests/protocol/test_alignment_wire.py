from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.alignment_messages import (
    KINDS,
    BlindedIds,
    Consent,
    KeyCheck,
    KeyGrant,
    KeyOffer,
    Piece,
    RemovedRows,
    RowCounts,
    RowPointers,
    RowsOffer,
    RowsPlan,
    RowSummary,
    SharedRowIndex,
    StoredPieces,
    Tokens,
)
from fdml.protocol.alignment_wire import MOST_GENERATIONS, decode_alignment, encode_alignment, kind_of
from tests.protocol.test_wire import plain

hashes = st.binary(min_size=32, max_size=32)
counts = st.integers(0, 2**53)
THIRD = Piece(2, 3, RowCounts(7, 5))
"""One training row and two test rows."""
PIECE_OF_TOKENS = Tokens(np.ones((1, 16), np.uint8), np.ones((2, 16), np.uint8), piece=THIRD)
PIECE_OF_POINTS = BlindedIds(np.ones((3, 32), np.uint8), piece=Piece(1, 3, RowCounts(9)))
PIECE_OF_PLACES = SharedRowIndex(np.array([4]), np.array([0, 1]), bytes(32), (9, 9), piece=THIRD)
tokens = arrays(np.uint8, st.tuples(st.integers(0, 5), st.just(16)))
points = arrays(np.uint8, st.tuples(st.integers(0, 5), st.just(32)), elements=st.integers(0, 127))
places = arrays(np.int64, st.integers(0, 9), elements=st.integers(0, 2**63 - 1))
ascending = st.sets(st.integers(0, 2**63 - 1), max_size=6).map(lambda found: np.array(sorted(found), np.int64))
generations = st.binary(min_size=16, max_size=16)
messages = st.one_of(
    st.builds(KeyOffer, hashes),
    st.builds(KeyOffer, hashes, st.binary(min_size=1), st.binary(min_size=1)),
    st.builds(KeyGrant, st.binary(min_size=1)),
    st.builds(KeyCheck, hashes),
    st.builds(Tokens, tokens, st.none() | tokens),
    st.builds(Tokens, by_position=st.builds(RowCounts, counts, st.none() | counts)),
    st.builds(BlindedIds, points, st.none() | points),
    st.builds(KeyOffer, hashes, brings_key=st.booleans()),
    st.builds(StoredPieces, counts),
    st.sampled_from([PIECE_OF_TOKENS, PIECE_OF_POINTS, PIECE_OF_PLACES]),
    st.builds(
        RowSummary,
        st.lists(counts).map(tuple),
        st.lists(counts).map(tuple),
        counts,
        counts,
        st.lists(counts).map(tuple),
    ),
    st.builds(RowPointers, counts, counts, hashes, st.binary()),
    st.builds(Consent, st.just(True)),
    st.builds(Consent, st.just(False), st.text("abc xyz'", max_size=200)),
    st.builds(SharedRowIndex, places, places, hashes, st.lists(counts).map(tuple)),
    st.builds(SharedRowIndex, places, places, hashes, st.just(()), places, places),
    st.builds(RowsOffer, generations, st.lists(generations, max_size=4).map(tuple), counts, st.booleans(), generations),
    st.builds(
        RowsPlan,
        generations,
        st.just(b"") | generations,
        st.integers(1, 2**53),
        st.lists(generations, max_size=4).map(tuple),
    ),
    st.builds(RemovedRows, ascending, ascending),
)
NO_TOKENS = np.zeros((0, 16), np.uint8)


def refusal_of(raw):
    with pytest.raises(MessageRefused) as raised:
        decode_alignment(raw)
    return raised.value.refusal


def outcome_of(raw):
    """The message, or why there is none."""
    try:
        return decode_alignment(raw)
    except MessageRefused as refused:
        return refused.refusal


@given(messages)
def test_every_message_comes_back_as_it_was_and_is_the_same_bytes_each_time(message):
    raw = encode_alignment(message)
    assert plain(decode_alignment(raw)) == plain(message)
    assert encode_alignment(message) == raw


def test_no_test_rows_are_something_else_than_no_test_file():
    for empty in (Tokens(NO_TOKENS, NO_TOKENS), Tokens(NO_TOKENS)):
        again = decode_alignment(encode_alignment(empty))
        assert (again.test is None) == (empty.test is None)
    assert decode_alignment(encode_alignment(Tokens(by_position=RowCounts(3, 0)))).by_position == RowCounts(3, 0)


@given(messages, st.data())
def test_bytes_cut_short_or_with_more_behind_are_another_message_or_refused(message, data):
    raw = encode_alignment(message)
    for changed in (raw[: data.draw(st.integers(0, len(raw) - 1))], raw + b"\x7a\x00"):
        again = outcome_of(changed)
        assert again is Refusal.INVALID or encode_alignment(again) == changed


@given(st.binary(max_size=60))
def test_random_bytes_are_decoded_or_refused(raw):
    again = outcome_of(raw)
    assert again is Refusal.INVALID or len(encode_alignment(again)) <= len(raw)


WRONG = {
    "a piece after the last": encode_alignment(replace(PIECE_OF_POINTS, piece=Piece(3, 3, RowCounts(9)))),
    "a piece with too few rows": encode_alignment(replace(PIECE_OF_POINTS, piece=Piece(0, 4, RowCounts(9)))),
    "a piece with rows of another kind": encode_alignment(replace(PIECE_OF_TOKENS, piece=Piece(0, 3, RowCounts(7, 5)))),
    "a piece of no rows": encode_alignment(replace(PIECE_OF_POINTS, piece=Piece(0, 0, RowCounts(9)))),
    "a piece of too many pieces": encode_alignment(
        BlindedIds(np.ones((1, 32), np.uint8), piece=Piece(0, 1, RowCounts(2**17)))
    ),
    "a piece of a set without tests, with tests": encode_alignment(
        replace(PIECE_OF_TOKENS, piece=Piece(2, 3, RowCounts(9)))
    ),
    "a piece without tests of a set with tests": encode_alignment(
        replace(PIECE_OF_POINTS, piece=Piece(1, 3, RowCounts(9, 2)))
    ),
    "a piece of rows by position": encode_alignment(Tokens(by_position=RowCounts(3), piece=Piece(0, 9, RowCounts(0)))),
    "an unknown field in the piece": b"\x2a\x2d\x0a\x20" + bytes(32) + b"\x1a\x09\x10\x01\x18\x01\x7a\x03xyz",
    "no message": b"\xff\xff",
    "no content": b"",
    "an unknown field outside": encode_alignment(KeyCheck(bytes(32))) + b"\x7a\x01x",
    "an unknown field inside": b"\x1a\x25\x0a\x20" + bytes(32) + b"\x7a\x01x",
    "an unknown field in the counts": b"\x22\x07\x1a\x05\x08\x03\x7a\x01x",
    "a number written at length": b"\x1a\xa2\x00\x0a\x20" + bytes(32),
    "a short public key": pb.AlignmentMessage(key_offer=pb.KeyOffer(public=bytes(31))).SerializeToString(),
    "a certificate without signature": encode_alignment(KeyOffer(bytes(32), b"x")),
    "a signature without certificate": encode_alignment(KeyOffer(bytes(32), b"", b"x")),
    "a grant of nothing": b"\x12\x00",
    "a long digest": encode_alignment(KeyCheck(bytes(33))),
    "half a token": pb.AlignmentMessage(tokens=pb.Tokens(train=bytes(24))).SerializeToString(),
    "half a test token": pb.AlignmentMessage(tokens=pb.Tokens(train=bytes(16), test=bytes(8))).SerializeToString(),
    "tokens by position": encode_alignment(Tokens(np.zeros((1, 16), np.uint8), None, RowCounts(1))),
    "test tokens by position": encode_alignment(Tokens(NO_TOKENS, NO_TOKENS, RowCounts(1))),
    "more rows than there can be": encode_alignment(Tokens(by_position=RowCounts(2**60))),
    "half a point": pb.AlignmentMessage(blinded_ids=pb.BlindedIds(train=bytes(16))).SerializeToString(),
    "a point with its top bit": encode_alignment(BlindedIds(np.full((1, 32), 255, np.uint8))),
    "half a row number": pb.AlignmentMessage(
        shared_rows=pb.SharedRowIndex(train=bytes(4), digest=bytes(32))
    ).SerializeToString(),
    "a row number below zero": encode_alignment(SharedRowIndex(np.array([-1]), np.zeros(0, np.int64), bytes(32), ())),
    "row numbers without digest": pb.AlignmentMessage(
        shared_rows=pb.SharedRowIndex(train=bytes(8))
    ).SerializeToString(),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_message_that_makes_no_sense_is_refused(wrong):
    assert refusal_of(WRONG[wrong]) is Refusal.INVALID


@pytest.mark.parametrize(
    "message",
    [KeyOffer(bytes(32), bytes(20_000), b"x"), KeyOffer(bytes(32), b"x", bytes(20_000)), KeyGrant(bytes(20_000))],
)
def test_what_is_small_may_not_be_large(message):
    assert refusal_of(encode_alignment(message)) is Refusal.TOO_LARGE


def test_kinds_have_names_to_travel_under():
    assert {name: kind_of(kind) for name, kind in KINDS.items()} == {name: name for name in KINDS}


@pytest.mark.parametrize("reason", ["x" * 201, "two\nlines", "\x1b[31mred"])
def test_what_a_party_says_against_the_rows_is_short_and_printable(reason):
    with pytest.raises(MessageRefused, match="at most 200, all printable"):
        decode_alignment(pb.AlignmentMessage(consent=pb.Consent(reason=reason)).SerializeToString())


def test_a_consent_says_nothing_against_itself():
    with pytest.raises(MessageRefused, match="a consent with a reason against it"):
        decode_alignment(pb.AlignmentMessage(consent=pb.Consent(given=True, reason="no")).SerializeToString())


def test_a_summary_of_more_rows_than_there_can_be_is_refused():
    with pytest.raises(MessageRefused, match="a summary of more than"):
        decode_alignment(pb.AlignmentMessage(row_summary=pb.RowSummary(rows=[2**60])).SerializeToString())


@pytest.mark.parametrize(
    "content",
    [{"train": 2**53 + 1}, {"held_out": 2**53 + 1}, {"digest": b"short"}],
    ids=["too many rows", "too many held out", "a short hash"],
)
def test_pointers_that_cannot_be_are_refused(content):
    pointers = pb.RowPointers(**{"train": 1, "held_out": 1, "digest": bytes(32), "sealed": b"x", **content})
    assert refusal_of(pb.AlignmentMessage(row_pointers=pointers).SerializeToString()) is Refusal.INVALID


def test_a_summary_of_too_many_matched_rows_is_refused():
    summary = pb.RowSummary(rows=[1], matched=[2**53 + 1])
    assert refusal_of(pb.AlignmentMessage(row_summary=summary).SerializeToString()) is Refusal.INVALID


@pytest.mark.parametrize(
    "message",
    [
        RowsOffer(b"short"),
        RowsOffer(bytes(16), (bytes(16), bytes(17))),
        RowsOffer(bytes(16), (bytes(16),) * (MOST_GENERATIONS + 1)),
        RowsOffer(bytes(16), number=2**53 + 1),
        RowsOffer(bytes(16), start=b"short"),
        RowsPlan(b"", b"", 1),
        RowsPlan(bytes(16), b"short", 1),
        RowsPlan(bytes(16), b"", 0),
        RowsPlan(bytes(16), b"", 1, (b"short",)),
        RemovedRows(np.array([2, 2]), np.zeros(0, np.int64)),
        RemovedRows(np.zeros(0, np.int64), np.array([3, 1])),
        RemovedRows(np.array([-1, 1]), np.zeros(0, np.int64)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_generations_that_cannot_be_are_refused(message):
    assert refusal_of(encode_alignment(message)) is Refusal.INVALID


def test_an_offer_of_as_many_generations_as_may_be_is_taken():
    offer = RowsOffer(bytes(16), (bytes(16),) * MOST_GENERATIONS, 2**53)
    assert decode_alignment(encode_alignment(offer)) == offer
