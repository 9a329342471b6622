"""Arrays in a file, written and read without being in memory as a whole."""

import numpy as np
import pytest

from fdml.errors import DataError
from fdml.storage.arrays import pack_arrays
from fdml.storage.disk import DiskPart, FolderDisk
from fdml.storage.large_arrays import load_arrays, save_arrays
from fdml.storage.memory import MemoryDisk

ARRAYS = {
    "facts": np.array('{"a": 1}'),
    "keys/0": np.arange(3200, dtype=np.uint8).reshape(200, 16),
    "rows": np.arange(500) ** 2,
    "none": np.zeros(0, np.int64),
}
MOST = 1000
"""Bytes that stay in memory here."""


@pytest.mark.parametrize("kind", ["folder", "part", "memory"])
@pytest.mark.parametrize("most", [MOST, 10**6])
def test_what_is_saved_is_loaded_whatever_the_way(tmp_path, kind, most):
    disk = MemoryDisk() if kind == "memory" else FolderDisk(tmp_path)
    disk = DiskPart(disk, "x-") if kind == "part" else disk
    save_arrays(disk, "found", ARRAYS, most)
    found = load_arrays(disk, "found", most)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    assert isinstance(found["rows"], np.memmap) == (kind != "memory" and most == MOST)


def test_the_bytes_are_those_of_arrays_that_are_packed_in_memory(tmp_path):
    disk = FolderDisk(tmp_path)
    save_arrays(disk, "found", ARRAYS, 0)
    assert disk.read("found") == pack_arrays(ARRAYS)


def test_there_is_nothing_where_nothing_was_saved(tmp_path):
    assert load_arrays(FolderDisk(tmp_path), "found") is None


def test_a_mapped_array_stays_what_it_was_when_its_file_is_replaced(tmp_path):
    disk = FolderDisk(tmp_path)
    save_arrays(disk, "found", ARRAYS)
    before = load_arrays(disk, "found", MOST)["rows"]
    save_arrays(disk, "found", {"rows": np.zeros(500, np.int64)})
    assert before[-1] == 499**2


@pytest.mark.parametrize("place", [900, 3000, 5000])
def test_a_damaged_array_is_noticed_before_it_is_used(tmp_path, place):
    disk = FolderDisk(tmp_path)
    content = bytearray(pack_arrays({"keys": ARRAYS["keys/0"], "rows": ARRAYS["rows"]}))
    content[place] ^= 0xFF
    disk.replace("found", bytes(content))
    with pytest.raises(DataError, match=r"no file of numpy arrays: array .* is damaged"):
        load_arrays(disk, "found", MOST)


@pytest.mark.parametrize("content", [b"", b"PK", b"x" * 3000])
def test_what_is_no_such_file_is_refused(tmp_path, content):
    disk = FolderDisk(tmp_path)
    disk.replace("found", content)
    with pytest.raises(DataError):
        load_arrays(disk, "found", MOST)
