"""More keys than memory holds, in ascending order."""

import numpy as np
import pytest

from fdml.align.key_partitions import MOST_PARTITIONS, KeyPartitions
from fdml.storage.disk import FolderDisk
from tests.storage.memory_disk import MemoryDisk


def given_back(partitions):
    """All keys and numbers in the order in which they are given, and the sizes of the partitions."""
    parts = [(keys, tags.copy()) for keys, tags in partitions.ascending()]
    keys, tags = (np.concatenate(each) for each in zip(*parts, strict=True))
    return [key.tobytes() for key in keys], tags.tolist(), [len(each) for each, _ in parts]


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("partition_rows", [7, 100, 10_000])
def test_keys_come_back_sorted_with_their_numbers(size, partition_rows, tmp_path):
    keys = np.random.default_rng(1).integers(0, 256, (900, size), np.uint8)
    partitions = KeyPartitions(FolderDisk(tmp_path), 900, size, partition_rows)
    for begin in range(0, 900, 250):
        part = keys[begin : begin + 250]
        partitions.add(part, np.arange(begin, begin + len(part)))
    found, numbers, sizes = given_back(partitions)
    assert found == sorted(key.tobytes() for key in keys)
    assert found == [keys[number].tobytes() for number in numbers]
    assert len(sizes) == min(MOST_PARTITIONS, -(-900 // partition_rows))
    assert max(sizes) < 3 * partition_rows + 20
    assert list(tmp_path.iterdir()) == []


def test_of_equal_keys_the_first_is_first():
    partitions = KeyPartitions(MemoryDisk(), 6, 16, 2)
    for number in (5, 3, 4):
        partitions.add(np.full((2, 16), 9, np.uint8), np.array([number, number + 10]))
    assert given_back(partitions)[1] == [5, 15, 3, 13, 4, 14]


def test_no_keys_are_one_empty_partition():
    assert given_back(KeyPartitions(MemoryDisk(), 0, 16)) == ([], [], [0])


def test_keys_at_both_ends_have_a_partition():
    partitions = KeyPartitions(MemoryDisk(), 8, 16, 1)
    partitions.add(np.array([[255] * 16, [0] * 16], np.uint8), np.array([1, 2]))
    assert given_back(partitions)[1] == [2, 1]
