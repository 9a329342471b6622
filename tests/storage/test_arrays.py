import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fdml.errors import DataError
from fdml.storage.arrays import pack_arrays, unpack_arrays

types = st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_, "U5", "<f8", ">i4"])
any_array = types.flatmap(lambda kind: arrays(kind, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)))
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@given(st.dictionaries(names, any_array, max_size=4))
def test_arrays_come_back_with_their_names_types_shapes_and_bits(given_arrays):
    found = unpack_arrays(pack_arrays(given_arrays))
    assert list(found) == list(given_arrays)
    for name, array in given_arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("name", ["file", "allow_pickle", "args", "module/weight", "a.npy", "0"])
def test_every_name_is_only_a_name(name):
    assert unpack_arrays(pack_arrays({name: np.arange(3)}))[name].tolist() == [0, 1, 2]


def test_the_same_arrays_give_the_same_bytes():
    given_arrays = {"a": np.arange(5), "b": np.ones((2, 2), np.float32)}
    assert pack_arrays(given_arrays) == pack_arrays(given_arrays)


def test_numpy_reads_the_file_as_its_own():
    with np.load(io.BytesIO(pack_arrays({"weight": np.arange(4.0)})), allow_pickle=False) as found:
        assert found["weight"].tolist() == [0, 1, 2, 3]


def test_what_numpy_writes_is_read_packed_or_not():
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(buffer, weight=np.arange(4.0))
        assert unpack_arrays(buffer.getvalue())["weight"].tolist() == [0, 1, 2, 3]


def test_python_objects_are_never_written():
    with pytest.raises(DataError, match="array 'x' is of type object; only numbers and text can be stored"):
        pack_arrays({"x": np.array([print, None], object)})


class Trap:
    """What a pickle can do to whoever loads it."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


def test_python_objects_are_never_read():
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, x=np.array([Trap()], object))
    with pytest.raises(DataError, match="Object arrays cannot be loaded"):
        unpack_arrays(buffer.getvalue())
    with pytest.raises(DataError, match="no file of numpy arrays"):
        unpack_arrays(pickle.dumps(Trap()))
    assert not Trap.sprung


@given(st.binary(max_size=60))
def test_other_bytes_are_no_arrays(content):
    with pytest.raises(DataError, match="no file of numpy arrays"):
        unpack_arrays(content)


@given(st.data())
def test_a_file_cut_short_or_changed_is_read_or_refused(data):
    content = bytearray(pack_arrays({"a": np.arange(9), "b": np.array(["x", "yy"])}))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack_arrays(bytes(content))
    except DataError:
        return
    assert all(isinstance(array, np.ndarray) for array in found.values())


def test_a_file_that_says_that_it_is_encrypted_is_refused():
    """One changed bit says so."""
    content = bytearray(pack_arrays({"a": np.arange(9)}))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(DataError, match="no file of numpy arrays"):
        unpack_arrays(bytes(content))
