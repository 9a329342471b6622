"""A hash over named arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def hash_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """32 bytes that are equal only if all names, types, shapes and bits are."""
    digest = hashlib.blake2b(digest_size=32)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()
