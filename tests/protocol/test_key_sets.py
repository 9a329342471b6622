import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.protocol.alignment_messages import RowCounts
from fdml.protocol.key_sets import ascending, is_ascending, position_digest, repeated, shared_digest, words


@given(arrays(np.uint8, st.tuples(st.integers(0, 30), st.sampled_from([16, 32])), elements=st.integers(0, 1)))
def test_keys_are_ordered_as_their_bytes_are(keys):
    rows = [row.tobytes() for row in keys]
    order = ascending(keys)
    assert [rows[at] for at in order] == sorted(rows)
    assert order.tolist() == sorted(range(len(rows)), key=rows.__getitem__)
    assert repeated(keys[order]) == len(rows) - len(set(rows))
    assert is_ascending(keys) == (rows == sorted(set(rows)))
    assert is_ascending(np.unique(keys, axis=0))


def test_the_digest_depends_on_every_key_and_on_its_set():
    keys = np.arange(64, dtype=np.uint8).reshape(4, 16)
    digests = [
        shared_digest(keys, None),
        shared_digest(keys, keys[:0]),
        shared_digest(keys[:3], keys[3:]),
        shared_digest(keys[:2], keys[2:]),
        shared_digest(keys[::-1], None),
        position_digest(RowCounts(4)),
        position_digest(RowCounts(4, 0)),
    ]
    assert len(set(digests)) == len(digests)
    assert {len(digest) for digest in digests} == {32}


@given(arrays(np.uint8, st.tuples(st.integers(0, 9), st.just(16))))
def test_words_compare_as_the_bytes_do(keys):
    rows = [row.tobytes() for row in keys]
    assert sorted(range(len(rows)), key=rows.__getitem__) == sorted(
        range(len(rows)), key=words(keys).tolist().__getitem__
    )


def test_keys_that_differ_in_the_last_word_only_are_ordered_too():
    keys = np.zeros((3, 32), np.uint8)
    keys[:, -1] = [3, 1, 2]
    assert ascending(keys).tolist() == [1, 2, 0]
    assert not is_ascending(keys)
    assert is_ascending(keys[[1, 2, 0]])


def test_one_key_and_none_are_in_order():
    for count in (0, 1):
        keys = np.zeros((count, 16), np.uint8)
        assert ascending(keys).tolist() == list(range(count))
        assert is_ascending(keys)
        assert repeated(keys) == 0
