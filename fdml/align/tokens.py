"""Ids as keyed hashes: whoever has the group key finds the same token for the same id, nobody else finds any."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.align.group_key import GroupKey
from fdml.data.id_hashes import HashIds, hash_ids
from fdml.data.many_texts import text_bytes
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import TOKEN_BYTES, Keys
from fdml.protocol.key_sets import ascending, repeated

_CHUNK = 65536


def id_tokens(ids: pa.LargeStringArray, key: GroupKey, context: str, hashed: HashIds = hash_ids) -> Keys:
    """The token of each id, in the order of the ids; another in every context, so that those cannot be linked."""
    return hashed(ids, key.derive(f"tokens of {context}"), TOKEN_BYTES)


def text_digest(texts: pa.LargeStringArray) -> bytes:
    """A hash of texts in their order; far quicker than to hash each of them."""
    digest = blake2b(digest_size=32)
    for begin in range(0, len(texts), _CHUNK):
        part = texts[begin : begin + _CHUNK]
        bounds, text = _texts(part)
        digest.update(np.packbits(part.is_null().to_numpy(zero_copy_only=False)).tobytes())
        digest.update(np.asarray(bounds, "<i8").tobytes() + text)
    return digest.digest()


def _texts(ids: pa.LargeStringArray) -> tuple[list[int], bytes]:
    """Where each text begins, and the bytes of all."""
    bounds, text = text_bytes(ids)
    return bounds.tolist(), bytes(text)


def sort_keys(keys: Keys, party: str) -> tuple[Keys, NDArray[np.int64]]:
    """Keys in ascending order, so that their places disclose nothing of the file, and the row each came from."""
    order = ascending(keys)
    ordered = keys[order]
    refuse_repeats(repeated(ordered), party)
    return ordered, order


def refuse_repeats(twice: int, party: str) -> None:
    """Refuse ids of which so many are there before."""
    if twice:
        raise AlignmentError(
            f"party {party!r} has {twice} rows with a duplicate id; keep one row per id, "
            f"set data.ids.duplicates, or add a column to data.id"
        )
