import numpy as np
import pyarrow as pa
import pytest
from nacl.bindings import (
    crypto_core_ed25519_from_uniform,
    crypto_core_ed25519_is_valid_point,
    crypto_scalarmult,
    crypto_sign_ed25519_pk_to_curve25519,
)

from fdml.align.ecdh import _inverses, blind, points_of
from fdml.align.group_key import GroupKey
from fdml.data.id_hashes import hash_ids
from fdml.errors import AlignmentError

KEY = GroupKey(bytes(range(32)))
PRIME = 2**255 - 19
ONE, OTHER, THIRD = (bytes([number]) * 32 for number in (1, 2, 3))


def texts(values):
    return pa.array(values, pa.large_string())


IDS = texts([f"id{number}" for number in range(40)])


def test_points_equal_those_of_the_library_that_is_slower():
    hashed = [row.tobytes() for row in hash_ids(IDS, KEY.derive("ecdh"), 32)]
    edwards = [crypto_core_ed25519_from_uniform(each) for each in hashed]
    assert all(map(crypto_core_ed25519_is_valid_point, edwards))
    expected = [crypto_sign_ed25519_pk_to_curve25519(each) for each in edwards]
    assert [row.tobytes() for row in points_of(IDS, KEY)] == expected


def test_every_point_lies_on_the_curve_and_none_on_its_twist():
    for row in points_of(IDS, KEY):
        u = int.from_bytes(row.tobytes(), "little")
        assert pow(u**3 + 486662 * u**2 + u, (PRIME - 1) // 2, PRIME) == 1


def test_blinding_equals_plain_scalar_multiplication():
    points = points_of(IDS, KEY)
    expected = [crypto_scalarmult(ONE, row.tobytes()) for row in points]
    assert [row.tobytes() for row in blind(points, ONE, "bank")] == expected


def test_the_order_of_blinding_does_not_matter():
    points = points_of(IDS, KEY)
    one = blind(blind(blind(points, ONE, "a"), OTHER, "b"), THIRD, "c")
    other = blind(blind(blind(points, THIRD, "c"), ONE, "a"), OTHER, "b")
    np.testing.assert_array_equal(one, other)
    assert len(np.unique(one, axis=0)) == len(IDS)


def test_chunks_and_threads_keep_the_order(monkeypatch):
    whole = blind(points_of(IDS, KEY), ONE, "bank")
    monkeypatch.setattr("fdml.align.ecdh._CHUNK", 3)
    np.testing.assert_array_equal(blind(points_of(IDS, KEY), ONE, "bank"), whole)


def test_no_ids_are_no_points():
    assert blind(points_of(texts([]), KEY), ONE, "bank").shape == (0, 32)


@pytest.mark.parametrize("u", [0, 1, PRIME - 1])
def test_a_point_of_small_order_names_its_sender(u):
    points = points_of(IDS, KEY).copy()
    points[7] = np.frombuffer(u.to_bytes(32, "little"), np.uint8)
    with pytest.raises(AlignmentError, match="party 'shop' sent a point that no id gives"):
        blind(points, ONE, "shop")


@pytest.mark.parametrize("values", [[], [5], [1, 2, 3, PRIME - 1, -7]])
def test_batch_inversion_equals_one_by_one(values):
    assert _inverses(values) == [pow(value, -1, PRIME) for value in values]
