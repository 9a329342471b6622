import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.align.group_key import GroupKey
from fdml.align.tokens import id_tokens, sort_keys
from fdml.data.id_hashes import hash_ids
from fdml.errors import AlignmentError, DataError

KEY = GroupKey(bytes(range(32)))


def texts(values):
    return pa.array(values, pa.large_string())


@given(st.lists(st.text(max_size=20), max_size=30), st.integers(0, 5), st.integers(0, 5))
def test_tokens_equal_a_plain_keyed_hash_also_of_slices(values, begin, end):
    ids = texts(values)[begin : max(len(values) - end, begin)]
    expected = [
        hashlib.blake2b(each.encode(), digest_size=16, key=KEY.derive("tokens of shop")).digest()
        for each in ids.to_pylist()
    ]
    found = id_tokens(ids, KEY, "shop")
    assert found.shape == (len(ids), 16)
    assert [row.tobytes() for row in found] == expected


def test_ids_over_several_chunks_are_hashed_each(monkeypatch):
    ids = texts([f"id{number}" for number in range(100)])
    whole = id_tokens(ids, KEY, "shop")
    monkeypatch.setattr("fdml.align.tokens._CHUNK", 7)
    np.testing.assert_array_equal(id_tokens(ids, KEY, "shop"), whole)
    assert len(np.unique(whole, axis=0)) == 100


def test_another_key_gives_other_tokens():
    ids = texts(["a"])
    assert id_tokens(ids, KEY, "shop").tobytes() != id_tokens(ids, GroupKey(bytes(32)), "shop").tobytes()
    assert id_tokens(ids, KEY, "shop").tobytes() != id_tokens(ids, KEY, "another run").tobytes()


def test_a_missing_id_is_refused():
    with pytest.raises(DataError, match=r"2 rows have no id; set data\.ids\.missing"):
        hash_ids(texts(["a", None, None]), b"key", 16)


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=20, unique=True))
def test_keys_are_put_in_ascending_order_and_know_their_rows(values):
    keys = np.frombuffer(b"".join(values), np.uint8).reshape(-1, 16)
    ordered, rows = sort_keys(keys, "bank")
    assert [row.tobytes() for row in ordered] == sorted(values)
    assert [values[row] for row in rows] == sorted(values)


def test_duplicate_keys_are_counted():
    with pytest.raises(AlignmentError, match="party 'bank' has 1 rows with a duplicate id"):
        sort_keys(np.zeros((2, 16), np.uint8), "bank")


def test_more_ids_than_are_hashed_at_once_have_the_tokens_they_have_alone():
    many = [f"customer-{number:09}" for number in range(70_000)]
    tokens = id_tokens(texts(many), KEY, "shop")
    for row in (0, 65_535, 65_536, 69_999):
        assert tokens[row].tobytes() == id_tokens(texts(many[row : row + 1]), KEY, "shop").tobytes()
