"""Which keys all parties hold. The server knows keys only: hashes or blinded points, never ids.

Sets are matched by partitions on disk, so that memory holds a part of the keys at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fdml.align.key_lists import RowIndex
from fdml.align.key_partitions import PARTITION_ROWS, KeyPartitions, Tags
from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_messages import (
    BlindedIds,
    Keys,
    Piece,
    RowCounts,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.key_sets import ascending, digest_of_parts, position_digest, words
from fdml.storage.disk import Disk

_SET_SHIFT = 56
"""Bits of a tag that are the place of a key in its set; those above are the number of the set."""
_PLACE = (1 << _SET_SHIFT) - 1


@dataclass(frozen=True)
class IdSetParts:
    """A set of ids to be matched, whose keys are read in parts."""

    owner: str
    rows: RowCounts
    parts: Callable[[], Iterator[Tokens | BlindedIds]]


def shared_keys(sets: Sequence[Keys]) -> tuple[list[RowIndex], Keys]:
    """For every set the places of the keys that all sets hold, in ascending order of the keys, and these keys.

    No set may hold a key twice.
    """
    everything = np.concatenate(sets)
    order = ascending(everything)
    tags = np.concatenate([_tags(number, 0, len(keys)) for number, keys in enumerate(sets)])
    return _in_all(everything[order], tags[order], len(sets))


def _tags(number: int, begin: int, rows: int) -> Tags:
    return np.arange(begin, begin + rows, dtype=np.int64) | (number << _SET_SHIFT)


def _in_all(keys: Keys, tags: Tags, sets: int) -> tuple[list[RowIndex], Keys]:
    """The same of keys in ascending order; equal ones are in the order of their sets."""
    values, last = words(keys), sets - 1
    # No key is there more often than there are sets, so two equal ones this far apart have one of every set between.
    first = np.flatnonzero((values[last:] == values[: max(len(values) - last, 0)]).all(axis=1))
    return [tags[first + number] & _PLACE for number in range(sets)], keys[first]


class SharedOnDisk:
    """What some sets share, in scratch files: by set the places of the shared keys, and these keys."""

    def __init__(self, sets: Sequence[IdSetParts], disk: Disk, partition_rows: int = PARTITION_ROWS) -> None:
        """Match them; a set that holds a key twice raises `MessageRefused`."""
        self._sets = sets
        self._disk = disk
        self._partition_rows = partition_rows
        self._places = [[disk.scratch() for _ in sets] for _ in range(2)]
        self._keys = disk.scratch()
        self._key_bytes = 0
        train = self._match(0, lambda part: part.train)
        has_tests = sets[0].rows.test is not None
        test = self._match(1, lambda part: part.train[:0] if part.test is None else part.test) if has_tests else None
        self.rows = RowCounts(train, test)
        """How many rows all share."""
        self.digest = digest_of_parts(self.rows, self._key_parts())

    def pieces(self, number: int, size: int) -> Iterator[tuple[Piece, RowIndex, RowIndex]]:
        """By piece, the places of the shared rows in a set: of training rows and of test rows."""
        for each in self._places:
            each[number].seek(0)
        whole = Piece(0, size, RowCounts(self.rows.train, self.rows.test or 0))
        for piece in map(whole.at, range(whole.count)):
            yield piece, self._read(0, number, piece.train), self._read(1, number, piece.test)

    def close(self) -> None:
        """Give the scratch files up."""
        for file in (self._keys, *self._places[0], *self._places[1]):
            file.close()

    def _match(self, kind: int, keys_of: Callable[[Tokens | BlindedIds], Keys]) -> int:
        """Match training or test rows; gives how many are shared."""
        partitions, shared = None, 0
        rows = sum((each.rows.test or 0) if kind else each.rows.train for each in self._sets)
        for number, each in enumerate(self._sets):
            begin = 0
            for keys in map(keys_of, each.parts()):
                if partitions is None:
                    self._key_bytes = keys.shape[1]
                    partitions = KeyPartitions(self._disk, rows, self._key_bytes, self._partition_rows)
                partitions.add(keys, _tags(number, begin, len(keys)))
                begin += len(keys)
        for keys, tags in () if partitions is None else partitions.ascending():
            self._check_repeats(keys, tags)
            places, found = _in_all(keys, tags, len(self._sets))
            self._keys.write(found.tobytes())
            for file, here in zip(self._places[kind], places, strict=True):
                file.write(here.astype("<i8").tobytes())
            shared += len(found)
        return shared

    def _check_repeats(self, keys: Keys, tags: Tags) -> None:
        values, numbers = words(keys), tags >> _SET_SHIFT
        again = np.flatnonzero((values[1:] == values[:-1]).all(axis=1) & (numbers[1:] == numbers[:-1]))
        if len(again):
            owner = self._sets[int(numbers[again[0]])].owner
            raise MessageRefused(f"the ids of party {owner!r} came with keys that repeat", Refusal.INVALID)

    def _key_parts(self) -> Iterator[Keys]:
        self._keys.seek(0)
        while raw := self._keys.read(self._partition_rows * max(self._key_bytes, 1)):
            yield np.frombuffer(raw, np.uint8)

    def _read(self, kind: int, number: int, rows: slice) -> RowIndex:
        raw = self._places[kind][number].read(8 * (rows.stop - rows.start))
        return np.frombuffer(raw, "<i8").astype(np.int64, copy=False)


def in_position(rows: RowCounts, parties: int) -> SharedRowIndex:
    """The shared rows of parties that are matched by position: all of them."""
    held_out = np.arange(rows.test or 0, dtype=np.int64)
    return SharedRowIndex(
        np.arange(rows.train, dtype=np.int64), held_out, position_digest(rows), (rows.train,) * parties
    )
