import zipfile

import numpy as np
import pytest

from fdml.data.archives import drop_pages, read_arrays
from fdml.errors import DataError

ARRAYS = {
    "X": np.arange(12, dtype=np.float64).reshape(3, 4),
    "F": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "ids": np.array(["ä", "bc"]),
    "zero": np.zeros((0, 3), np.float32),
    "scalar": np.array(b"csr"),
    "flags": np.array([True, False]),
}


def is_mapped(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back_as_they_were_saved(tmp_path, save):
    save(tmp_path / "x.npz", **ARRAYS)
    found = read_arrays(tmp_path / "x.npz")
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_what_is_not_compressed_is_mapped_and_not_read(tmp_path):
    np.savez(tmp_path / "x.npz", **ARRAYS)
    np.savez_compressed(tmp_path / "packed.npz", **ARRAYS)
    np.save(tmp_path / "x.npy", ARRAYS["X"])
    assert is_mapped(read_arrays(tmp_path / "x.npz")["X"])
    assert is_mapped(read_arrays(tmp_path / "x.npy")["X"])
    assert not is_mapped(read_arrays(tmp_path / "packed.npz")["X"])


def test_a_npy_file_is_one_array(tmp_path):
    np.save(tmp_path / "x.npy", ARRAYS["F"])
    np.testing.assert_array_equal(read_arrays(tmp_path / "x.npy")["X"], ARRAYS["F"])


def test_members_are_found_behind_headers_of_any_length(tmp_path):
    np.savez(tmp_path / "x.npz", X=ARRAYS["X"], **{"a" * 200: np.arange(3)})
    found = read_arrays(tmp_path / "x.npz")
    np.testing.assert_array_equal(found["X"], ARRAYS["X"])
    np.testing.assert_array_equal(found["a" * 200], np.arange(3))


def test_an_array_with_a_long_header_is_read(tmp_path):
    kind = np.dtype([(f"field{number}" * 100, np.int8) for number in range(120)])
    with pytest.warns(UserWarning, match="format 2.0"):
        np.savez(tmp_path / "x.npz", X=np.zeros(2, kind))
    with pytest.raises(DataError, match="cannot be read as a numpy file"):
        read_arrays(tmp_path / "x.npz")  # numpy itself refuses headers of this length


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_objects_are_never_unpickled(tmp_path, save):
    save(tmp_path / "x.npz", X=np.array([[{}]]))
    with pytest.raises(DataError, match=r"cannot be read as a numpy file: Object arrays cannot be loaded"):
        read_arrays(tmp_path / "x.npz")


def test_a_member_that_claims_more_than_it_holds_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((2, 4)))
    content = (tmp_path / "x.npy").read_bytes()
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("X.npy", content[:-8])
        archive.writestr("y.npy", content)
    with pytest.raises(DataError, match=r"an array of 64 bytes is cut short; save arrays of numbers or text"):
        read_arrays(tmp_path / "x.npz")


def test_a_member_that_is_no_array_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("notes.txt", "hello, this is text")
    with pytest.raises(DataError, match="cannot be read as a numpy file"):
        read_arrays(tmp_path / "x.npz")


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("name", ["x.npz", "x.npy"])
def test_a_file_cut_short_is_refused(tmp_path, keep, name):
    (np.savez if name.endswith("z") else np.save)(tmp_path / name, np.arange(1000))
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(DataError, match="cannot be read as a numpy file"):
        read_arrays(tmp_path / name)


def test_what_was_let_go_can_be_read_again(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.arange(10_000.0))
    array = read_arrays(tmp_path / "x.npz")["X"]
    total = array.sum()
    drop_pages(array, array[5:], np.arange(3))
    assert array.sum() == total == np.arange(10_000.0).sum()
