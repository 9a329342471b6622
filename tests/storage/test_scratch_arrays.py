"""Arrays in files that are gone with them."""

import gc

import numpy as np
import pytest

from fdml.storage.disk import DiskPart, FolderDisk
from fdml.storage.memory import MemoryDisk
from fdml.storage.scratch_arrays import all_numbers, gathered, scratch_array


def test_a_large_array_is_mapped_from_a_file_without_a_name(tmp_path):
    disk = DiskPart(FolderDisk(tmp_path), "a-")
    array = scratch_array(disk, (1000, 2), np.int64, 100)
    assert isinstance(array, np.memmap)
    array[:] = np.arange(2000).reshape(1000, 2)
    gc.collect()
    assert array.sum() == 1999 * 1000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("disk", [None, MemoryDisk()])
def test_without_a_folder_it_is_in_memory(disk):
    array = scratch_array(disk, (50,), np.uint8, 1)
    assert not isinstance(array, np.memmap)
    assert array.shape == (50,)


def test_a_small_array_needs_no_file(tmp_path):
    assert not isinstance(scratch_array(FolderDisk(tmp_path), (50,), np.uint8), np.memmap)


def test_values_are_gathered_a_part_at_a_time(tmp_path):
    values, places = np.arange(100) ** 2, np.array([5, 99, 0, 7, 7])
    for step in (1, 2, 100):
        np.testing.assert_array_equal(gathered(FolderDisk(tmp_path), values, places, step), values[places])
    assert gathered(None, values, places[:0]).tolist() == []


@pytest.mark.parametrize("count", [0, 1, 7, 100])
def test_all_numbers_are_there_in_memory_or_mapped(tmp_path, count):
    for disk, most in ((None, 0), (FolderDisk(tmp_path), 0 if count else 1)):
        assert all_numbers(disk, count, 7, most).tolist() == list(range(count))
