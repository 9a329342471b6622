"""Alignment messages by kind, and requests for them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.protocol.alignment_messages import (
    HASH_BYTES,
    KINDS,
    POINT_BYTES,
    SERVER,
    TOKEN_BYTES,
    BlindedIds,
    Consent,
    Fetch,
    KeyCheck,
    KeyGrant,
    KeyOffer,
    Post,
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
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment, kind_of

EXAMPLES = {
    "rows_offer": RowsOffer(b"t" * 16, (b"2" * 16, b"1" * 16), 2, whole=True, start=b"d" * 16),
    "rows_plan": RowsPlan(b"3" * 16, b"2" * 16, 3, (b"d" * 16, b"e" * 16)),
    "removed_rows": RemovedRows(np.array([1, 4]), np.zeros(0, np.int64)),
    "key_offer": KeyOffer(b"p" * 32, b"certificate", b"signature"),
    "key_grant": KeyGrant(b"s" * 48),
    "key_check": KeyCheck(b"c" * HASH_BYTES),
    "tokens": Tokens(np.arange(2 * TOKEN_BYTES, dtype=np.uint8).reshape(2, -1)),
    "blinded_ids": BlindedIds(np.arange(POINT_BYTES, dtype=np.uint8).reshape(1, -1)),
    "row_summary": RowSummary((30, 40), (3, 4), 20, 2),
    "consent": Consent(False, "too many rows"),
    "shared_rows": SharedRowIndex(np.array([1, 0]), np.array([2]), b"d" * HASH_BYTES, (3, 4)),
    "row_pointers": RowPointers(30, 4, b"d" * HASH_BYTES, b"s" * 64),
    "stored_pieces": StoredPieces(3),
}


def test_every_kind_has_an_example_here():
    assert {name: type(message) for name, message in EXAMPLES.items()} == KINDS


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_travels_under_its_own_name_and_comes_back_as_it_was(name):
    message = EXAMPLES[name]
    assert kind_of(type(message)) == name
    again = decode_alignment(encode_alignment(message))
    assert type(again) is type(message)
    assert encode_alignment(again) == encode_alignment(message)


@pytest.mark.parametrize("name", KINDS)
def test_equal_messages_are_equal_bytes_and_other_kinds_are_others(name):
    raw = encode_alignment(EXAMPLES[name])
    assert raw == encode_alignment(EXAMPLES[name])
    assert raw not in [encode_alignment(other) for kind, other in EXAMPLES.items() if kind != name]


def test_a_post_is_for_whom_its_kind_says_unless_someone_is_named():
    post = Post(EXAMPLES["key_check"])
    assert (post.to, post.about) == (SERVER, "")
    assert Post(EXAMPLES["key_grant"], to="bob").to == "bob"


def test_requests_are_values():
    assert Fetch(KeyCheck, "ann") == Fetch(KeyCheck, "ann")
    assert Fetch(KeyCheck, "ann") != Fetch(KeyOffer, "ann")
    assert Fetch(BlindedIds, "ann", "bob") != Fetch(BlindedIds, "ann", "cyd")
    with pytest.raises(AttributeError):
        Fetch(KeyCheck, "ann").sender = "bob"


@given(train=st.integers(0, 2**53 - 1), test=st.none() | st.integers(0, 2**53 - 1))
def test_numbers_of_rows_travel_exactly(train, test):
    message = Tokens(by_position=RowCounts(train, test))
    assert decode_alignment(encode_alignment(message)).by_position == RowCounts(train, test)


@given(rows=st.lists(st.integers(0, 2**40), max_size=20))
def test_row_numbers_travel_exactly_and_in_their_order(rows):
    message = SharedRowIndex(np.array(rows, np.int64), np.zeros(0, np.int64), b"d" * HASH_BYTES, (len(rows), 7))
    again = decode_alignment(encode_alignment(message))
    assert again.train.tolist() == rows
    assert again.held_out.tolist() == []
    assert again.counts == (len(rows), 7)


@pytest.mark.parametrize("with_test", [False, True])
def test_no_test_file_is_something_else_than_an_empty_one(with_test):
    keys = np.zeros((1, TOKEN_BYTES), np.uint8)
    message = Tokens(keys, np.zeros((0, TOKEN_BYTES), np.uint8) if with_test else None)
    again = decode_alignment(encode_alignment(message))
    assert (again.test is not None) == with_test
    if with_test:
        assert again.test.shape == (0, TOKEN_BYTES)
