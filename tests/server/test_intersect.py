import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.protocol.alignment_messages import BlindedIds, RowCounts, Tokens
from fdml.protocol.key_sets import shared_digest
from fdml.server.intersect import match_rows, shared_keys


def keys_of(values, size=16):
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, size)


few = st.integers(0, 40).map(lambda number: bytes(7) + bytes([number % 3]) + bytes([number]) * 8)


@given(st.lists(st.sets(few).flatmap(lambda each: st.permutations(sorted(each))), min_size=1, max_size=5))
def test_shared_keys_equal_a_plain_intersection(sets):
    places, keys = shared_keys([keys_of(each) for each in sets])
    expected = sorted(set.intersection(*map(set, sets)))
    assert [row.tobytes() for row in keys] == expected
    for own, found in zip(sets, places, strict=True):
        assert [own[place] for place in found] == expected


@pytest.mark.parametrize(("kind", "size"), [(Tokens, 16), (BlindedIds, 32)])
@pytest.mark.parametrize("with_test", [False, True])
def test_every_party_is_told_its_own_places_and_one_digest(kind, size, with_test):
    def key(number):
        return bytes([number]) * size

    trains = [[key(1), key(2), key(3)], [key(3), key(9), key(1), key(8)]]
    tests = [[key(5)], [key(4), key(5)]] if with_test else [None, None]
    sets = [
        kind(keys_of(train, size), None if test is None else keys_of(test, size))
        for train, test in zip(trains, tests, strict=True)
    ]
    found = match_rows(sets)
    assert [each.train.tolist() for each in found] == [[0, 2], [2, 0]]
    assert [each.held_out.tolist() for each in found] == ([[0], [1]] if with_test else [[], []])
    assert {each.counts for each in found} == {(3, 4)}
    test_keys = keys_of([key(5)], size) if with_test else None
    assert {each.digest for each in found} == {shared_digest(keys_of([key(1), key(3)], size), test_keys)}


def test_nothing_shared_gives_empty_places():
    found = match_rows([Tokens(keys_of([b"a" * 16])), Tokens(keys_of([b"b" * 16]))])
    assert [each.train.tolist() for each in found] == [[], []]


def test_rows_by_position_are_all_shared():
    found = match_rows([Tokens(by_position=RowCounts(3, 2))] * 2)
    assert [each.train.tolist() for each in found] == [[0, 1, 2]] * 2
    assert [each.held_out.tolist() for each in found] == [[0, 1]] * 2
    assert found[0].counts == (3, 3)


def test_many_keys_are_matched_as_sets_would_be():
    chance = np.random.default_rng(0)
    common = chance.integers(0, 256, (50_000, 16), np.uint8)
    sets = [np.concatenate([common, chance.integers(0, 256, (50_000, 16), np.uint8)]) for _ in range(3)]
    places, keys = shared_keys(sets)
    assert {key.tobytes() for key in keys} == {key.tobytes() for key in common}
    for rows, each in zip(places, sets, strict=True):
        np.testing.assert_array_equal(each[rows], keys)
