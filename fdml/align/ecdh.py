"""Private set intersection: ids as points of a curve that every party in turn blinds with a secret of its own.

Blinding twice gives the same in either order. So once all parties have blinded
all sets, equal ids are equal points, and nobody can test an id for being there
without the secrets of all. Points are hashed to the Edwards form of the curve,
where every hash gives a point of the large subgroup, and blinded in Montgomery
form by X25519. (Hashing straight to Montgomery form would show, even blinded,
whether an id fell on the curve or its twist.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from nacl.bindings import crypto_core_ed25519_from_uniform, crypto_scalarmult
from nacl.exceptions import CryptoError

from fdml.align.conversation import Conversation
from fdml.align.group_key import GroupKey
from fdml.align.pieces import Make, pass_pieces, post_set
from fdml.data.id_hashes import hash_ids
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import POINT_BYTES, SERVER, BlindedIds, Keys, Piece

_PRIME = 2**255 - 19
_SIGN = 2**255
_CHUNK = 2048


def points_of(ids: pa.LargeStringArray, key: GroupKey, purpose: str = "ecdh") -> Keys:
    """The point of each id, in Montgomery form, before any blinding; not for other eyes."""
    return _in_threads(_hashed_to_curve, hash_ids(ids, key.derive(purpose), POINT_BYTES))


def blind(points: Keys, scalar: bytes, sender: str) -> Keys:
    """Multiply points by a party's secret; a point that no honest sender can have sent names the sender."""

    def work(part: bytes) -> bytes:
        return b"".join([crypto_scalarmult(scalar, point) for point in _each(part)])

    try:
        return _in_threads(work, points)
    except CryptoError:
        raise AlignmentError(
            f"party {sender!r} sent a point that no id gives; see that it runs the same version of fdml, then give "
            f"the run a new name at every side"
        ) from None


def pass_round(parties: Sequence[str], party: str, whole: Piece, make: Make, scalar: bytes) -> Conversation[None]:
    """Send this party's blinded set round, and blind every other party's set as it comes by.

    Each set goes to the next party of the run; the last before its owner hands it to the server.
    """
    at, size = parties.index(party), len(parties)
    before, following = parties[at - 1], parties[(at + 1) % size]
    yield from post_set(BlindedIds, whole, make, SERVER if size == 1 else following, party)
    for distance in range(1, size):
        owner = parties[at - distance]
        yield from pass_on(before, owner, SERVER if following == owner else following, scalar)


def pass_on(sender: str, owner: str, to: str, scalar: bytes) -> Conversation[None]:
    """Blind an owner's set as a sender passes it, and pass it on."""
    yield from pass_pieces(sender, owner, to, lambda points: blind(points, scalar, sender))


def _in_threads(work: Callable[[bytes], bytes], rows: Keys) -> Keys:
    """Do work on rows by chunks; the curve's arithmetic runs beside other threads."""
    parts = [rows[begin : begin + _CHUNK].tobytes() for begin in range(0, len(rows), _CHUNK)]
    if len(parts) == 1:
        return np.frombuffer(work(parts[0]), np.uint8).reshape(-1, POINT_BYTES)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        done = b"".join(threads.map(work, parts))
    return np.frombuffer(done, np.uint8).reshape(-1, POINT_BYTES)


def _each(part: bytes) -> list[bytes]:
    return [part[begin : begin + POINT_BYTES] for begin in range(0, len(part), POINT_BYTES)]


def _hashed_to_curve(part: bytes) -> bytes:
    """Hashes as points, given by u = (1 + y) / (1 - y)."""
    heights = [int.from_bytes(crypto_core_ed25519_from_uniform(each), "little") & (_SIGN - 1) for each in _each(part)]
    inverses = _inverses([1 - y for y in heights])
    found = [(1 + y) * inverse % _PRIME for y, inverse in zip(heights, inverses, strict=True)]
    return b"".join([u.to_bytes(POINT_BYTES, "little") for u in found])


def _inverses(values: Sequence[int]) -> list[int]:
    """All inverses for the price of one: products up to each value, one inverse, and back down."""
    products, product = [], 1
    for value in values:
        products.append(product)
        product = product * value % _PRIME
    inverse = pow(product, -1, _PRIME)
    inverses = [0] * len(values)
    for at in range(len(values) - 1, -1, -1):
        inverses[at] = inverse * products[at] % _PRIME
        inverse = inverse * values[at] % _PRIME
    return inverses
