"""Keyed hashes of ids."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np

from fdml.data.many_texts import text_bytes
from fdml.errors import DataError
from fdml.protocol.alignment_messages import Keys

_CHUNK = 65536

HashIds = Callable[[Any, bytes, int], Keys]
"""Ids as a large_string array, a key, and the bytes of a hash."""


def hash_ids(ids: Any, key: bytes, size: int) -> Keys:
    """A keyed hash of each id's text, `(ids, size)`."""
    if ids.null_count:
        raise DataError(f"{ids.null_count} rows have no id; set data.ids.missing to drop them")
    hashed = np.empty((len(ids), size), np.uint8)
    keyed = blake2b(digest_size=size, key=key)
    for begin in range(0, len(ids), _CHUNK):
        bounds, content = text_bytes(ids[begin : begin + _CHUNK])
        text, digests = bytes(content), []
        for start, end in pairwise(bounds.tolist()):
            one = keyed.copy()  # a third quicker than to begin each hash with the key
            one.update(text[start:end])
            digests.append(one.digest())
        hashed[begin : begin + _CHUNK] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, size)
    return hashed
