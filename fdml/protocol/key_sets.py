"""Sets of id keys: their order, and the hash by which all sides see that they mean the same rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.alignment_messages import GENERATION_BYTES, HASH_BYTES, Keys, RowCounts


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
    """Whether every key is greater than the one before, so that there are no duplicates."""
    columns = words(keys)
    undecided = np.ones(max(len(keys) - 1, 0), bool)
    for column in columns.T:
        if (undecided & (column[1:] < column[:-1])).any():
            return False
        undecided &= column[1:] == column[:-1]
    return not undecided.any()


def shared_digest(train: Keys, test: Keys | None) -> bytes:
    """A hash over the shared keys of both sets; equal only if all parties mean the same rows in the same order."""
    rows = RowCounts(len(train), None if test is None else len(test))
    return digest_of_parts(rows, [train] if test is None else [train, test])


def digest_of_parts(rows: RowCounts, parts: Iterable[Keys]) -> bytes:
    """The same of keys that come in parts, those of the training rows first; `rows` says how many there are."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES, person=b"fdml shared keys")
    digest.update(f"{rows.train} {'none' if rows.test is None else rows.test} ".encode())
    for part in parts:
        digest.update(part.tobytes())
    return digest.digest()


def position_digest(rows: RowCounts) -> bytes:
    """The same for rows that are matched by position: it depends on their number alone."""
    return hashlib.blake2b(f"{rows.train} {rows.test} by position".encode(), digest_size=HASH_BYTES).digest()


def chained_digest(base: bytes, found: bytes, left: NDArray[np.int64], left_test: NDArray[np.int64]) -> bytes:
    """The hash of a generation that adds rows with one hash to another generation, and takes some off it."""
    digest = hashlib.blake2b(base + found, digest_size=HASH_BYTES, person=b"fdml generation")
    for rows in (left, left_test):
        digest.update(len(rows).to_bytes(8, "little") + rows.astype("<i8").tobytes())
    return digest.digest()


def generation_id(base: bytes, tags: Sequence[bytes]) -> bytes:
    """The name of the generation that rows with these tags, in the run's order, make on top of a base.

    The same rows on the same base are the same generation, in whatever run they come together.
    """
    content = len(base).to_bytes(1, "little") + base + b"".join(tags)
    return hashlib.blake2b(content, digest_size=GENERATION_BYTES, person=b"fdml generation").digest()
