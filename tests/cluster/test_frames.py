"""Frames over pipes: the same facts and arrays come out, and nothing that is not plain numbers."""

import io
import json
import struct

import numpy as np
import pytest

from fdml.cluster.frames import Frame, from_bytes, read_frame, to_bytes, write_frame
from fdml.errors import StateCorrupt

ARRAYS = {
    "state/theta": np.arange(6, dtype=np.float32).reshape(2, 3),
    "state/none": np.zeros((0, 4), np.int64),
    "single": np.array(2.5),
    "turned": np.arange(6).reshape(2, 3).T,
    "names": np.array([b"ab", b"c"]),
}


def test_a_frame_comes_out_as_it_went_in():
    pipe = io.BytesIO()
    for number in range(2):
        write_frame(pipe, Frame({"number": number, "list": [1, "a"]}, ARRAYS))
    pipe.seek(0)
    for number in range(2):
        found = read_frame(pipe)
        assert found.facts == {"number": number, "list": [1, "a"]}
        assert found.arrays.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found.arrays[name], array)
            assert found.arrays[name].dtype == array.dtype
    assert read_frame(pipe) is None


def test_arrays_of_a_group_are_found_by_its_name():
    assert set(Frame({}, ARRAYS).under("state")) == {"theta", "none"}


def test_a_frame_that_is_cut_off_is_none():
    whole = to_bytes(Frame({"a": 1}, ARRAYS))
    for size in (0, 3, 20, len(whole) - 1):
        assert read_frame(io.BytesIO(whole[:size])) is None


def test_an_array_of_python_objects_is_refused():
    head = json.dumps({"facts": {}, "arrays": [["x", "|O", [1]]]}).encode()
    with pytest.raises(StateCorrupt, match=r"'x' of type '\|O'"):
        read_frame(io.BytesIO(struct.pack("<Q", len(head)) + head + bytes(8)))


def test_an_array_that_came_over_a_pipe_can_be_changed():
    found = read_frame(io.BytesIO(to_bytes(Frame({}, ARRAYS))))
    found.arrays["state/theta"][0, 0] = 9.0


def test_a_frame_comes_out_of_its_bytes_as_it_went_in():
    found = from_bytes(to_bytes(Frame({"a": 1}, ARRAYS)))
    assert found.facts == {"a": 1}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found.arrays[name], array)


def test_bytes_that_are_no_whole_frame_are_refused():
    whole = to_bytes(Frame({"a": 1}, ARRAYS))
    for size in (0, len(whole) - 1):
        with pytest.raises(StateCorrupt, match=f"{size} bytes that are no whole frame"):
            from_bytes(whole[:size])
