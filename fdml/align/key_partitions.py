"""Keys of more rows than memory holds, in ascending order: written to files by how they begin, read back file by file.

Keys are hashes or points of the curve, so about equally many begin with any bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.alignment_messages import Keys
from fdml.protocol.key_sets import ascending
from fdml.storage.disk import Disk

PARTITION_ROWS = 2**20
"""Rows of a partition: under 100 MB of memory while they are sorted."""
MOST_PARTITIONS = 512
"""All of them are open files at once."""
_PREFIX_BITS = 16
_TAG_BYTES = 8
Tags = NDArray[np.int64]


class KeyPartitions:
    """Takes keys with a number each, in any order, and gives them back in ascending order, a partition at a time."""

    def __init__(self, disk: Disk, rows: int, key_bytes: int, partition_rows: int = PARTITION_ROWS) -> None:
        self._key_bytes = key_bytes
        self._files = ExitStack()
        count = min(MOST_PARTITIONS, -(-rows // partition_rows) or 1)
        self._parts: list[BinaryIO] = [self._files.enter_context(disk.scratch()) for _ in range(count)]

    def add(self, keys: Keys, tags: Tags) -> None:
        """Put keys into their files."""
        of_part = self._part_of(keys)
        records = np.empty((len(keys), self._key_bytes + _TAG_BYTES), np.uint8)
        records[:, : self._key_bytes] = keys
        records[:, self._key_bytes :] = np.ascontiguousarray(tags, "<i8").view(np.uint8).reshape(-1, _TAG_BYTES)
        order = np.argsort(of_part, kind="stable")
        records, ends = records[order], np.cumsum(np.bincount(of_part, minlength=len(self._parts)))
        for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > begin:
                self._parts[number].write(records[begin:end].tobytes())

    def ascending(self) -> Iterator[tuple[Keys, Tags]]:
        """All keys with their numbers in ascending order of the keys; of equal keys the one that came first is first.

        Each file is gone when its keys have been given.
        """
        with self._files:
            for part in self._parts:
                part.seek(0)
                records = np.frombuffer(part.read(), np.uint8).reshape(-1, self._key_bytes + _TAG_BYTES)
                part.close()
                keys = np.ascontiguousarray(records[:, : self._key_bytes])
                tags = np.ascontiguousarray(records[:, self._key_bytes :]).view("<i8").reshape(-1)
                del records
                order = ascending(keys)
                yield keys[order], tags[order].astype(np.int64, copy=False)

    def _part_of(self, keys: Keys) -> NDArray[np.int64]:
        """By key, the number of its file: ascending as the keys are."""
        first = (keys[:, 0].astype(np.int64) << 8) | keys[:, 1]
        return (first * len(self._parts)) >> _PREFIX_BITS
