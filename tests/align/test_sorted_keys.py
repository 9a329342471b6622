"""Keys of more ids than memory holds."""

import numpy as np
import pyarrow as pa
import pytest

from fdml.align.sorted_keys import sorted_keys
from fdml.align.tokens import sort_keys
from fdml.data.id_hashes import hash_ids
from fdml.errors import AlignmentError
from fdml.storage.disk import FolderDisk

TEXTS = pa.array([f"id {number}" for number in range(1000)], pa.large_string())


def hashed(texts):
    return hash_ids(texts, b"k" * 32, 16)


@pytest.mark.parametrize("most", [64, 300, 999])
def test_keys_sorted_by_partitions_are_those_sorted_in_memory(tmp_path, most):
    expected, rows = sort_keys(hashed(TEXTS), "bank")
    keys, order = sorted_keys(TEXTS, hashed, "bank", FolderDisk(tmp_path), most)
    np.testing.assert_array_equal(keys, expected)
    np.testing.assert_array_equal(order, rows)
    assert isinstance(keys, np.memmap)


def test_few_keys_and_keys_without_a_disk_stay_in_memory(tmp_path):
    for disk, most in ((None, 1), (FolderDisk(tmp_path), 1000)):
        keys, _ = sorted_keys(TEXTS, hashed, "bank", disk, most)
        assert not isinstance(keys, np.memmap)


def test_duplicates_are_counted_over_all_partitions(tmp_path):
    twice = pa.concat_arrays([TEXTS, TEXTS[:7]])
    with pytest.raises(AlignmentError, match="party 'bank' has 7 rows with a duplicate id"):
        sorted_keys(twice, hashed, "bank", FolderDisk(tmp_path), 100)
