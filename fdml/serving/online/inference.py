"""Requests and responses of `infer`: the JSON of the protocol, and binary tensors after it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fdml.errors import RequestRefused
from fdml.protocol.quoting import quoted
from fdml.serving.online.tensors import DATATYPES, Output, read_json, read_raw, read_shape

HEADER_LENGTH = "Inference-Header-Content-Length"
"""The HTTP header that says how much of a body is JSON; binary tensors follow."""
_MOST_TENSORS = 64
_LONGEST_ID = 200


@dataclass(frozen=True, eq=False)
class InferenceRequest:
    """What a caller asks."""

    inputs: Mapping[str, Any]
    """By name, pyarrow arrays of one length."""
    id: str = ""
    """Of the request; the response repeats it."""
    outputs: Mapping[str, bool] | None = None
    """The wanted ones, and whether in binary; None is all."""
    is_binary: bool = False
    """Whether outputs are binary where the request does not say it of each."""
    seconds: float | None = None
    """How long the caller waits."""


def read_request(body: bytes, header_length: str | None, most_rows: int) -> InferenceRequest:
    """A request, or `RequestRefused`; `header_length` is the HTTP header of the binary extension."""
    length = _header_length(header_length, len(body))
    content = _object(body[:length])
    request_id = content.get("id", "")
    if not isinstance(request_id, str) or len(request_id) > _LONGEST_ID:
        raise RequestRefused(400, f"the request's id is not a text of at most {_LONGEST_ID} characters")
    parameters = _parameters(content, "the request")
    return InferenceRequest(
        _inputs(content, memoryview(body)[length:], most_rows),
        request_id,
        _outputs(content, bool(parameters.get("binary_data_output"))),
        bool(parameters.get("binary_data_output")),
        _seconds(parameters),
    )


def write_response(facts: Mapping[str, Any], outputs: Sequence[tuple[Output, bool]]) -> tuple[bytes, int | None]:
    """The body, and how much of it is JSON; None where all of it is. `outputs` come with whether they are binary."""
    listed, raws = [], []
    for output, is_binary in outputs:
        tensor: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": output.shape}
        if is_binary:
            raw = output.raw()
            raws.append(raw)
            tensor["parameters"] = {"binary_data_size": len(raw)}
        else:
            tensor["data"] = output.data()
        listed.append(tensor)
    content = json.dumps({**facts, "outputs": listed}, allow_nan=False).encode()
    return (b"".join([content, *raws]), len(content)) if raws else (content, None)


def _header_length(text: str | None, size: int) -> int:
    if text is None:
        return size
    if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) <= size):
        raise RequestRefused(400, f"{HEADER_LENGTH} is {quoted(text)}; the body has {size} bytes")
    return int(text)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        raise RequestRefused(400, "the body is not JSON") from None
    if not isinstance(content, dict):
        raise RequestRefused(400, "the body is no JSON object")
    return content


def _parameters(content: Mapping[str, Any], what: str) -> dict[str, Any]:
    found = content.get("parameters", {})
    if not isinstance(found, dict):
        raise RequestRefused(400, f"the parameters of {what} are no JSON object")
    return found


def _seconds(parameters: Mapping[str, Any]) -> float | None:
    """Triton's parameter: microseconds."""
    timeout = parameters.get("timeout")
    if timeout is None:
        return None
    if type(timeout) is not int or not 0 < timeout <= 2**53:
        raise RequestRefused(400, "the parameter timeout is not a number of microseconds above 0")
    return timeout / 1e6


def _tensors(content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The inputs or outputs of a request, each with a name of its own."""
    found = content.get(key)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise RequestRefused(400, f"the request has no list of {key}")
    if len(found) > _MOST_TENSORS:
        raise RequestRefused(400, f"the request has {len(found)} {key}; {_MOST_TENSORS} is the most")
    names = [each.get("name") for each in found]
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise RequestRefused(400, f"the {key} of the request do not each have a name of their own")
    return found


def _inputs(content: Mapping[str, Any], rest: memoryview, most_rows: int) -> dict[str, Any]:
    arrays, at = dict[str, Any](), 0
    for tensor in _tensors(content, "inputs"):
        name, datatype = tensor["name"], tensor.get("datatype")
        if datatype not in DATATYPES:
            raise RequestRefused(
                400, f"input {quoted(name)} has the datatype {_said(datatype)}; {', '.join(DATATYPES)} can be read"
            )
        rows = read_shape(name, tensor.get("shape"), most_rows)
        size = _parameters(tensor, f"input {quoted(name)}").get("binary_data_size")
        if size is None:
            arrays[name] = read_json(name, datatype, rows, tensor.get("data"))
            continue
        if type(size) is not int or not 0 <= size <= len(rest) - at:
            raise RequestRefused(
                400, f"input {quoted(name)} has a binary_data_size that is not within the {len(rest) - at} bytes left"
            )
        arrays[name] = read_raw(name, datatype, rows, rest[at : at + size])
        at += size
    if at != len(rest):
        raise RequestRefused(400, f"the body has {len(rest) - at} bytes that belong to no input")
    if len({len(each) for each in arrays.values()}) > 1:
        raise RequestRefused(400, "the inputs have different numbers of rows")
    return arrays


def _outputs(content: Mapping[str, Any], default: bool) -> dict[str, bool] | None:
    if not content.get("outputs"):
        return None
    found = {}
    for tensor in _tensors(content, "outputs"):
        parameters = _parameters(tensor, f"output {quoted(tensor['name'])}")
        found[tensor["name"]] = bool(parameters.get("binary_data", default))
    return found


def _said(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else "that is no text"
