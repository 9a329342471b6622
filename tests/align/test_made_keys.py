"""Keys of ids as they are posted."""

import numpy as np
import pyarrow as pa
import pytest

from fdml.align.group_key import GroupKey
from fdml.align.made_keys import KeyMaker, keys_of_piece
from fdml.align.offers import make_offer
from fdml.align.party_secrets import Secrets
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import Piece, RowCounts
from fdml.protocol.key_sets import is_ascending
from tests.align.test_matching import run_of

KEY = GroupKey(bytes(range(32)))
TEXTS = pa.array([f"id {number}" for number in range(12)], pa.large_string())


def maker(mode, scalar=b"s" * 32):
    offer = make_offer(b"p" * 32, run_of(mode), "bank", None)
    return KeyMaker(mode, "bank", KEY, Secrets(b"p" * 32, offer, b"g" * 32, scalar))


@pytest.mark.parametrize("mode", ["tokens", "ecdh"])
def test_keys_made_in_parts_are_those_made_at_once(mode):
    made = maker(mode).make(TEXTS, "here", "ecdh")
    parts = [made.part(slice(begin, begin + 5)) for begin in (0, 5, 10)]
    np.testing.assert_array_equal(np.concatenate(parts), made.part(slice(0, 12)))
    assert sorted(made.order.tolist()) == list(range(12))


def test_tokens_are_in_ascending_order_and_points_in_one_of_the_partys_own():
    assert is_ascending(maker("tokens").make(TEXTS, "here", "ecdh").part(slice(0, 12)))
    orders = [maker("ecdh", scalar * 32).make(TEXTS, "here", "ecdh").order.tolist() for scalar in (b"a", b"b", b"a")]
    assert orders[0] == orders[2] != orders[1]
    assert orders[0] != list(range(12))


@pytest.mark.parametrize("mode", ["tokens", "ecdh"])
def test_the_same_id_twice_is_refused_before_anything_is_posted(mode):
    with pytest.raises(AlignmentError, match="1 rows with a duplicate id"):
        maker(mode).make(pa.array(["a", "b", "a"], pa.large_string()), "here", "ecdh")


@pytest.mark.parametrize("mode", ["tokens", "ecdh"])
def test_a_piece_has_its_keys_of_both_kinds_of_rows(mode):
    train, test = (maker(mode).make(TEXTS[begin : begin + 6], "here", "ecdh") for begin in (0, 6))
    piece = Piece(1, 4, RowCounts(6, 6))
    found = keys_of_piece(train, test)(piece)
    np.testing.assert_array_equal(found[0], train.part(slice(4, 6)))
    np.testing.assert_array_equal(found[1], test.part(slice(0, 2)))
    assert keys_of_piece(train, None)(piece)[1] is None
