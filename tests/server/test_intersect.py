import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused
from fdml.protocol.alignment_messages import BlindedIds, RowCounts, Tokens
from fdml.protocol.key_sets import shared_digest
from fdml.server.intersect import IdSetParts, SharedOnDisk, in_position, shared_keys
from fdml.server.stored_messages import row_counts
from tests.storage.memory_disk import MemoryDisk


def keys_of(values, size=16):
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, size)


def on_disk(sets, partition_rows=2, parts=1):
    """Some sets matched by partitions; each is read in parts."""
    given = []
    for number, each in enumerate(sets):
        cuts = zip(
            np.array_split(each.train, parts),
            np.array_split(each.train[:0] if each.test is None else each.test, parts),
            strict=True,
        )
        read = [type(each)(train, None if each.test is None else test) for train, test in cuts]
        given.append(IdSetParts(f"p{number}", row_counts(each), lambda read=read: iter(read)))
    return SharedOnDisk(given, MemoryDisk(), partition_rows)


def places_of(shared, number, size=3):
    """The places of one set, put together."""
    pieces = list(shared.pieces(number, size))
    return [np.concatenate([each[kind] for each in pieces]).tolist() for kind in (1, 2)]


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
    shared = on_disk(sets)
    assert [places_of(shared, number) for number in (0, 1)] == [
        [[0, 2], [0] if with_test else []],
        [[2, 0], [1] if with_test else []],
    ]
    assert shared.rows == RowCounts(2, 1 if with_test else None)
    test_keys = keys_of([key(5)], size) if with_test else None
    assert shared.digest == shared_digest(keys_of([key(1), key(3)], size), test_keys)


@given(st.lists(st.sets(few, min_size=1).map(sorted), min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 4))
def test_partitions_on_disk_find_what_memory_finds(sets, partition_rows, parts):
    every = [Tokens(keys_of(each)) for each in sets]
    places, keys = shared_keys([each.train for each in every])
    shared = on_disk(every, partition_rows, parts)
    assert [places_of(shared, number)[0] for number in range(len(sets))] == [each.tolist() for each in places]
    assert shared.digest == shared_digest(keys, None)


def test_nothing_shared_gives_empty_places():
    shared = on_disk([Tokens(keys_of([b"a" * 16])), Tokens(keys_of([b"b" * 16]))])
    assert places_of(shared, 0) == places_of(shared, 1) == [[], []]


@pytest.mark.parametrize("kind", ["train", "test"])
def test_a_set_with_a_key_twice_is_refused_by_its_owners_name(kind):
    twice, fine = keys_of([b"a" * 16, b"b" * 16, b"a" * 16]), keys_of([b"b" * 16])
    bad = Tokens(twice, fine) if kind == "train" else Tokens(fine, twice)
    with pytest.raises(MessageRefused, match="party 'p1' came with keys that repeat"):
        on_disk([Tokens(fine, fine), bad], parts=2)


def test_rows_by_position_are_all_shared():
    found = in_position(RowCounts(3, 2), 2)
    assert (found.train.tolist(), found.held_out.tolist(), found.counts) == ([0, 1, 2], [0, 1], (3, 3))


def test_many_keys_are_matched_as_sets_would_be():
    chance = np.random.default_rng(0)
    common = chance.integers(0, 256, (50_000, 16), np.uint8)
    sets = [np.concatenate([common, chance.integers(0, 256, (50_000, 16), np.uint8)]) for _ in range(3)]
    places, keys = shared_keys(sets)
    assert {key.tobytes() for key in keys} == {key.tobytes() for key in common}
    for rows, each in zip(places, sets, strict=True):
        np.testing.assert_array_equal(each[rows], keys)
