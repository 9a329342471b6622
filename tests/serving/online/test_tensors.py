"""Tensors of the protocol as JSON and binary: what is read, and what is refused without showing a value."""

import struct
import time

import numpy as np
import pytest

from fdml.errors import RequestRefused
from fdml.serving.online.tensors import DATATYPES, Output, read_json, read_raw, read_shape


def framed(*texts):
    return b"".join(struct.pack("<I", len(each)) + each for each in texts)


def refused(status, match, call, *given):
    with pytest.raises(RequestRefused, match=match) as found:
        call(*given)
    assert found.value.status == status


@pytest.mark.parametrize("shape", [[3], [3, 1]])
def test_an_input_has_one_column(shape):
    assert read_shape("user", shape, 10) == 3


@pytest.mark.parametrize("shape", [None, 3, [], [3, 2], [3, 1, 1], ["3"], [-1], [True], [3.0], [[3]]])
def test_another_shape_is_refused(shape):
    refused(400, r"'user' has a shape that is neither \[rows\] nor \[rows, 1\]", read_shape, "user", shape, 10)


def test_a_shape_of_huge_numbers_takes_no_time():
    """Their product took minutes, and the endpoint answered nobody meanwhile."""
    began = time.process_time()
    refused(400, "neither", read_shape, "user", [3, *[10**4000] * 400], 10)
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize("form", ["json", "raw"])
def test_a_text_longer_than_any_id_is_refused_with_its_row(form):
    """A normal form of 8 MB of accents takes hours to find, and the endpoint would answer nobody meanwhile."""
    texts = ["a" * 1024, "a" + "\u0301\u0323" * 300, "b"]
    raw = framed(*(each.encode() for each in texts))
    read, given = (read_json, texts) if form == "json" else (read_raw, memoryview(raw))
    refused(400, "row 2 of input 'user' has over 1024 bytes", read, "user", "BYTES", 3, given)
    assert len(read_json("user", "BYTES", 1, texts[:1])) == 1


def test_too_many_rows_and_none_are_refused():
    refused(413, "has 11 rows; 10 is the most", read_shape, "user", [11], 10)
    refused(413, "10 is the most", read_shape, "user", [10**30], 10)
    refused(400, "has no rows", read_shape, "user", [0], 10)


def test_a_long_name_is_cut_in_errors():
    with pytest.raises(RequestRefused) as found:
        read_shape("x" * 10_000, [0], 10)
    assert len(str(found.value)) < 200


def test_texts_are_read_from_json_flat_and_nested():
    assert read_json("user", "BYTES", 2, ["a", "ü"]).to_pylist() == ["a", "ü"]
    assert read_json("user", "BYTES", 2, [["a"], ["b"]]).to_pylist() == ["a", "b"]


def test_numbers_are_read_from_json():
    assert read_json("user", "INT64", 2, [7, -(2**62)]).to_pylist() == [7, -(2**62)]
    assert read_json("user", "UINT64", 1, [2**64 - 1]).to_pylist() == [2**64 - 1]
    assert read_json("age", "FP64", 2, [1.5, 2]).to_pylist() == [1.5, 2.0]


@pytest.mark.parametrize("value", [1, 1.5, True, None, {"a": 1}, ["a", "b"], []])
def test_what_is_no_text_is_refused_with_its_row(value):
    refused(400, "row 2 of input 'user' is a .*, not of type BYTES", read_json, "user", "BYTES", 2, ["a", value])


@pytest.mark.parametrize(("datatype", "value"), [("INT64", "7"), ("INT64", 1.5), ("INT64", True), ("FP64", "x")])
def test_a_number_of_another_type_is_refused(datatype, value):
    refused(400, f"row 1 .* not of type {datatype}", read_json, "user", datatype, 1, [value])


@pytest.mark.parametrize(("datatype", "value"), [("INT8", 128), ("UINT8", -1), ("UINT64", 2**64), ("INT64", 2**70)])
def test_a_number_past_its_type_is_refused(datatype, value):
    refused(400, f"values that are not of type {datatype}", read_json, "user", datatype, 1, [value])


def test_half_a_letter_is_refused_without_being_shown():
    with pytest.raises(RequestRefused, match="not of type BYTES") as found:
        read_json("user", "BYTES", 1, ["secret\ud800"])
    assert "secret" not in str(found.value)


def test_data_that_does_not_fit_the_shape_is_refused():
    refused(400, "has 3 values; its shape says 2", read_json, "user", "BYTES", 2, ["a", "b", "c"])
    refused(400, "has no data", read_json, "user", "BYTES", 2, None)
    refused(400, "has no data", read_json, "user", "BYTES", 2, "ab")


def test_texts_are_read_from_bytes():
    raw = framed(b"a", b"", "ü".encode())
    assert read_raw("user", "BYTES", 3, memoryview(raw)).to_pylist() == ["a", "", "ü"]


@pytest.mark.parametrize("datatype", [each for each in DATATYPES if each != "BYTES"])
def test_numbers_are_read_from_bytes_of_their_size(datatype):
    kind = datatype.replace("FP", "f").replace("UINT", "u").replace("INT", "i")
    size = int(kind[1:]) // 8
    raw = np.arange(5).astype(f"<{kind[0]}{size}").tobytes()
    assert read_raw("user", datatype, 5, memoryview(raw)).to_pylist() == [0, 1, 2, 3, 4]
    refused(400, f"5 of {datatype} are {5 * size}", read_raw, "user", datatype, 5, memoryview(raw[:-1]))


def test_bytes_that_are_cut_off_are_refused():
    raw = framed(b"abc", b"def")
    refused(400, "ends before row 3 of 3", read_raw, "user", "BYTES", 3, memoryview(raw))
    refused(400, "row 2 .* longer than its bytes", read_raw, "user", "BYTES", 2, memoryview(raw[:-1]))
    refused(400, "7 bytes after its 1 rows", read_raw, "user", "BYTES", 1, memoryview(raw))
    refused(400, "longer than its bytes", read_raw, "user", "BYTES", 1, memoryview(struct.pack("<I", 2**32 - 1)))


def test_bytes_that_are_no_text_are_refused_without_being_shown():
    with pytest.raises(RequestRefused, match="not UTF-8") as found:
        read_raw("user", "BYTES", 1, memoryview(framed(b"secret\xff")))
    assert "secret" not in str(found.value)


def test_numbers_are_written_with_null_where_there_are_none():
    output = Output("score", np.array([1.5, np.nan, np.inf]))
    assert output.data() == [1.5, None, None]
    assert (output.datatype, output.shape) == ("FP64", [3])
    assert np.array_equal(np.frombuffer(output.raw(), "<f8"), [1.5, np.nan, np.inf], equal_nan=True)


def test_numbers_of_several_classes_are_written_row_by_row():
    output = Output("score", np.arange(6.0).reshape(3, 2))
    assert output.shape == [3, 2]
    assert output.data() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_truth_values_are_written_as_such():
    output = Output("asked", np.array([True, False]))
    assert (output.datatype, output.data(), output.raw()) == ("BOOL", [True, False], b"\x01\x00")


def test_texts_are_written_by_which_one_a_row_has():
    output = Output("missing", texts=["", "bö"], which=np.array([1, 0, 1]))
    assert (output.datatype, output.shape) == ("BYTES", [3])
    assert output.data() == ["bö", "", "bö"]
    assert output.raw() == framed("bö".encode(), b"", "bö".encode())
    assert read_raw("missing", "BYTES", 3, memoryview(output.raw())).to_pylist() == output.data()
