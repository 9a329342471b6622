"""Keys of a party's ids in ascending order; those of many ids by partitions on disk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from fdml.align.key_lists import RowIndex
from fdml.align.key_partitions import PARTITION_ROWS, KeyPartitions
from fdml.align.tokens import refuse_repeats, sort_keys
from fdml.protocol.alignment_messages import TOKEN_BYTES, Keys
from fdml.protocol.key_sets import repeated
from fdml.storage.disk import Disk
from fdml.storage.scratch_arrays import IN_MEMORY, scratch_array

_CHUNK = 2**18
Hash = Callable[[pa.LargeStringArray], Keys]


def sorted_keys(
    texts: pa.LargeStringArray, hashed: Hash, party: str, disk: Disk | None, most: int = PARTITION_ROWS
) -> tuple[Keys, RowIndex]:
    """Keys in ascending order, and the row each came from; beyond `most` rows both are mapped from scratch files."""
    if disk is None or len(texts) <= most:
        return sort_keys(hashed(texts), party)
    partitions = KeyPartitions(disk, len(texts), TOKEN_BYTES, most)
    step = min(_CHUNK, most)
    for begin in range(0, len(texts), step):
        keys = hashed(texts[begin : begin + step])
        partitions.add(keys, np.arange(begin, begin + len(keys)))
    in_memory = min(IN_MEMORY, most * TOKEN_BYTES)
    ordered = scratch_array(disk, (len(texts), TOKEN_BYTES), np.uint8, in_memory)
    order = scratch_array(disk, (len(texts),), np.int64, in_memory)
    end = twice = 0
    for keys, rows in partitions.ascending():
        begin, end = end, end + len(keys)
        ordered[begin:end], order[begin:end] = keys, rows
        twice += repeated(keys)
    refuse_repeats(twice, party)
    return ordered, order
