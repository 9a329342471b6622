"""Requests of the protocol and its binary extension: what is read, and what is refused before it is believed."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import RequestRefused
from fdml.serving.online.inference import read_request, write_response
from fdml.serving.online.tensors import Output
from tests.serving.online.served import asked, ids_input

MOST = 100


def read(content, header=None, rest=b""):
    return read_request(json.dumps(content).encode() + rest, header, MOST)


def refused(status, match, content, header=None, rest=b""):
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(RequestRefused, match=match) as found:
        read_request(raw + rest, header, MOST)
    assert found.value.status == status


def status_of(raw, header=None):
    try:
        read_request(raw, header, MOST)
    except RequestRefused as refusal:
        return refusal.status
    return 200


def test_a_request_in_json():
    request = read(asked("a", "b", id="r1", parameters={"timeout": 250_000, "other": 1}))
    assert request.inputs["user"].to_pylist() == ["a", "b"]
    assert (request.id, request.outputs, request.is_binary, request.seconds) == ("r1", None, False, 0.25)


def test_a_request_with_binary_tensors_after_the_json():
    raw = b"".join(struct.pack("<I", 1) + each for each in (b"a", b"b"))
    numbers = np.array([7, 8], "<i8").tobytes()
    content = {
        "inputs": [
            {"name": "user", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(raw)}},
            {"name": "app", "datatype": "INT64", "shape": [2, 1], "parameters": {"binary_data_size": len(numbers)}},
            {"name": "day", "datatype": "INT32", "shape": [2], "data": [1, 2]},
        ],
        "parameters": {"binary_data_output": True},
    }
    length = len(json.dumps(content))
    request = read(content, str(length), raw + numbers)
    assert {name: each.to_pylist() for name, each in request.inputs.items()} == {
        "user": ["a", "b"],
        "app": [7, 8],
        "day": [1, 2],
    }
    assert request.is_binary


def test_outputs_say_whether_they_are_binary():
    outputs = [{"name": "score", "parameters": {"binary_data": True}}, {"name": "why"}]
    assert read(asked("a", outputs=outputs)).outputs == {"score": True, "why": False}
    assert read(asked("a", outputs=outputs, parameters={"binary_data_output": True})).outputs["why"]
    assert read(asked("a", outputs=[])).outputs is None


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 100_000, b"1" * 5000, b'"x'])
def test_what_is_no_json_is_refused(raw):
    refused(400, "not JSON", raw)


@pytest.mark.parametrize("raw", [b"[]", b"1", b"null", b'"text"'])
def test_what_is_no_object_is_refused(raw):
    refused(400, "no JSON object", raw)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({}, "no list of inputs"),
        ({"inputs": {}}, "no list of inputs"),
        ({"inputs": ["user"]}, "no list of inputs"),
        ({"inputs": [ids_input("a", name=1)]}, "a name of their own"),
        ({"inputs": [ids_input("a"), ids_input("b")]}, "a name of their own"),
        ({"inputs": [ids_input("a", datatype="BOOLS")]}, "'user' has the datatype 'BOOLS'; BYTES, UINT8"),
        ({"inputs": [ids_input("a", datatype=["BYTES"])]}, "datatype that is no text"),
        ({"inputs": [ids_input("a", shape=[2])]}, "has 1 values; its shape says 2"),
        ({"inputs": [ids_input("a", parameters=[])]}, "parameters of input 'user' are no JSON object"),
        ({"inputs": [ids_input("a", parameters={"binary_data_size": 5})]}, "within the 0 bytes left"),
        ({"inputs": [ids_input("a", parameters={"binary_data_size": "5"})]}, "within the 0 bytes left"),
        ({"inputs": [ids_input("a"), ids_input("a", "b", name="app")]}, "different numbers of rows"),
        ({"inputs": [ids_input("a", name=str(at)) for at in range(65)]}, "65 inputs; 64 is the most"),
        (asked("a", id=7), "id is not a text"),
        (asked("a", id="x" * 201), "id is not a text of at most 200"),
        (asked("a", parameters=7), "parameters of the request are no JSON object"),
        (asked("a", parameters={"timeout": 0}), "timeout is not a number of microseconds"),
        (asked("a", parameters={"timeout": "1"}), "timeout is not"),
        (asked("a", parameters={"timeout": 10**30}), "timeout is not"),
        (asked("a", outputs={"name": "score"}), "no list of outputs"),
        (asked("a", outputs=[{"name": None}]), "a name of their own"),
        (asked("a", outputs=[{"name": "score", "parameters": 1}]), "parameters of output 'score'"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_by_name(content, match):
    refused(400, match, content)


@pytest.mark.parametrize("header", ["x", "-1", "1.5", "", "99999", "9" * 30, "٣"])
def test_a_length_of_the_json_that_cannot_be_is_refused(header):
    refused(400, "Inference-Header-Content-Length is", asked("a"), header)


def test_bytes_that_belong_to_no_input_are_refused():
    content = asked("a")
    refused(400, "3 bytes that belong to no input", content, str(len(json.dumps(content))), b"abc")


def test_too_many_rows_are_refused_before_their_data_is_looked_at():
    refused(413, "has 101 rows; 100 is the most", {"inputs": [ids_input(shape=[101])]})


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(0, 250).map(str)))
def test_any_bytes_are_a_request_or_refused(raw, header):
    assert status_of(raw, header) in (200, 400, 413)


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["inputs", "name", "shape", "datatype", "data", "parameters", "outputs"]),
                inner,
                max_size=5,
            ),
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_request_or_refused(content):
    assert status_of(json.dumps(content).encode()) in (200, 400, 413)


def test_a_response_in_json_is_json_alone():
    body, length = write_response({"model_name": "m"}, [(Output("score", np.array([1.0, np.nan])), False)])
    assert length is None
    assert json.loads(body) == {
        "model_name": "m",
        "outputs": [{"name": "score", "datatype": "FP64", "shape": [2], "data": [1.0, None]}],
    }


def test_binary_outputs_come_after_the_json_in_their_order():
    texts = Output("why", texts=["no"], which=np.array([0]))
    outputs = [(Output("score", np.array([1.0])), True), (Output("probability", np.array([0.5])), False), (texts, True)]
    body, length = write_response({}, outputs)
    listed = json.loads(body[:length])["outputs"]
    assert [each.get("parameters") for each in listed] == [{"binary_data_size": 8}, None, {"binary_data_size": 6}]
    assert listed[1]["data"] == [0.5]
    assert body[length:] == struct.pack("<d", 1.0) + struct.pack("<I", 2) + b"no"
