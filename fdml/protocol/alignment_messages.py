"""What the parties post on the server's board, before training, to find their shared rows without showing ids.

No notice names its sender: the board knows it from the line it came by.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint8]
"""One key a row: tokens are `(rows, 16)`, points of the curve `(rows, 32)`."""

HASH_BYTES = 32
TOKEN_BYTES = 16
POINT_BYTES = 32
SERVER = ""
"""The server's name as sender of a notice. As addressee it leaves it to the kind: all parties, or the server."""


@dataclass(frozen=True)
class KeyOffer:
    """A party's public key for agreeing on the group key, signed with its certificate's key; for all parties.

    On plain lines certificate and signature are empty.
    """

    public: bytes
    certificate: bytes = b""
    signature: bytes = b""


@dataclass(frozen=True)
class KeyGrant:
    """The group key, sealed by the run's first party for one other."""

    sealed: bytes


@dataclass(frozen=True)
class KeyCheck:
    """Shows that a party has the same group key as the others, without showing the key; for all parties."""

    digest: bytes


@dataclass(frozen=True)
class RowCounts:
    """How many rows a party has, or all share; `test` is None without test files."""

    train: int
    test: int | None = None


@dataclass(frozen=True, eq=False)
class Tokens:
    """Keyed hashes of a party's ids in ascending order, for the server; `test` is None without a test file.

    A party without ids gives its `by_position` instead, and no tokens at all.
    """

    train: Keys = field(default_factory=lambda: np.zeros((0, TOKEN_BYTES), np.uint8))
    test: Keys | None = None
    by_position: RowCounts | None = None


@dataclass(frozen=True, eq=False)
class BlindedIds:
    """A party's ids as points of the curve that some parties have blinded; `about` says whose.

    From party to party, and from the last one to the server, always in the owner's order.
    """

    train: Keys
    test: Keys | None = None


@dataclass(frozen=True, eq=False)
class SharedRowIndex:
    """What the server found, for one party: where the shared rows stand in what this party posted.

    Both lists are in the order of the shared keys, which is the same for all
    parties, and so is `digest`, a hash over these keys. `held_out` is empty
    without test files. `counts` are all parties' training rows in the run's order.
    """

    train: NDArray[np.int64]
    held_out: NDArray[np.int64]
    digest: bytes
    counts: tuple[int, ...]


AlignmentMessage = KeyOffer | KeyGrant | KeyCheck | Tokens | BlindedIds | SharedRowIndex
N = TypeVar("N", bound=AlignmentMessage)

KINDS: dict[str, type[AlignmentMessage]] = {
    "key_offer": KeyOffer,
    "key_grant": KeyGrant,
    "key_check": KeyCheck,
    "tokens": Tokens,
    "blinded": BlindedIds,
    "places": SharedRowIndex,
}
"""The kinds by the names under which they travel."""


def words(keys: Keys) -> NDArray[np.uint64]:
    """Keys as rows of whole numbers that compare as their bytes do."""
    return np.ascontiguousarray(keys).view(">u8").astype(np.uint64)


def ascending(keys: Keys) -> NDArray[np.int64]:
    """The row numbers of keys in ascending order; equal keys keep the order they are in."""
    columns = words(keys)
    order = np.argsort(columns[:, 0], kind="stable")
    # Keys are hashes or points, so two that begin alike are equal, and the sort is done; but it must not rely on that.
    same = np.flatnonzero(columns[order[1:], 0] == columns[order[:-1], 0])
    if (columns[order[same]] != columns[order[same + 1]]).any():
        order = np.lexsort(columns.T[::-1])
    return order.astype(np.int64, copy=False)


def repeated(ordered: Keys) -> int:
    """How many of keys in ascending order are equal to the one before."""
    columns = words(ordered)
    return int((columns[1:] == columns[:-1]).all(axis=1).sum())


def is_ascending(keys: Keys) -> bool:
    """Whether every key is greater than the one before, so that none stands there twice."""
    columns = words(keys)
    undecided = np.ones(max(len(keys) - 1, 0), bool)
    for column in columns.T:
        if (undecided & (column[1:] < column[:-1])).any():
            return False
        undecided &= column[1:] == column[:-1]
    return not undecided.any()


def shared_digest(train: Keys, test: Keys | None) -> bytes:
    """A hash over the shared keys of both sets; equal only if all parties mean the same rows in the same order."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES, person=b"fdml shared keys")
    digest.update(f"{len(train)} {'none' if test is None else len(test)} ".encode())
    digest.update(train.tobytes())
    if test is not None:
        digest.update(test.tobytes())
    return digest.digest()


def position_digest(rows: RowCounts) -> bytes:
    """The same for rows that are matched by position: it stands for their number alone."""
    return hashlib.blake2b(f"{rows.train} {rows.test} by position".encode(), digest_size=HASH_BYTES).digest()
