"""Keyed hashes of ids: blake2b of each text alone, whatever array they lie in."""

from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data import id_hashes
from fdml.data.id_hashes import hash_ids
from fdml.errors import DataError

KEY = b"k" * 32
texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=30)


def array_of(found):
    return pa.array(found, pa.large_string())


@given(texts, st.sampled_from([16, 32]))
def test_each_hash_is_that_of_its_text_under_the_key(found, size):
    hashed = hash_ids(array_of(found), KEY, size)
    assert hashed.dtype == np.uint8
    assert hashed.shape == (len(found), size)
    wanted = [blake2b(text.encode(), key=KEY, digest_size=size).digest() for text in found]
    assert [bytes(each) for each in hashed] == wanted


def test_more_ids_than_are_hashed_at_once_keep_their_order(monkeypatch):
    ids = array_of([f"u{number}" for number in range(100)])
    whole = hash_ids(ids, KEY, 16)
    monkeypatch.setattr(id_hashes, "_CHUNK", 7)
    assert (hash_ids(ids, KEY, 16) == whole).all()
    assert (hash_ids(ids.slice(31, 20), KEY, 16) == whole[31:51]).all()


def test_another_key_gives_other_hashes():
    ids = array_of(["a", "b"])
    assert not (hash_ids(ids, KEY, 16) == hash_ids(ids, b"other", 16)).all(axis=1).any()


def test_an_id_that_is_missing_is_refused_with_the_way_out():
    with pytest.raises(DataError, match=r"2 rows have no id; set data\.ids\.missing to drop them"):
        hash_ids(array_of(["a", None, "b", None]), KEY, 16)
