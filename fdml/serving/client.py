"""A client of `fdml endpoint` without further dependencies: ids go out as binary tensors, scores come back as arrays.

Any client of Open Inference Protocol v2 does as well. One `EndpointClient` is used by one thread at a time.
"""

from __future__ import annotations

import http.client
import json
import ssl
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from fdml.errors import ExchangeError, RequestRefused, SettingsError
from fdml.protocol.quoting import shown

_HEADER_LENGTH = "Inference-Header-Content-Length"
_LENGTH = struct.Struct("<I")
_MOST_ANSWER = 2**28
"""Bytes of an answer that are read."""
Ids = Sequence[str] | Sequence[int] | NDArray[Any]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The answers to some ids, in their order."""

    version: str
    score: NDArray[np.float64]
    """`(rows,)`, or `(rows, classes)`; NaN where a row has none."""
    probability: NDArray[np.float64] | None
    """Of class 1, or of each class; None where the task has none."""
    prediction: NDArray[Any]
    """The class as text, empty where there is none; of a regression the value, or NaN."""
    answered: NDArray[np.object_]
    """The parties whose parts are in the score, as "ann,bob"."""
    missing: NDArray[np.object_]
    """Those whose are not."""
    why: NDArray[np.object_]
    asked: NDArray[np.bool_] | None = None
    """Whether the others were asked for a row; None where they always are."""

    def __len__(self) -> int:
        return len(self.score)


class EndpointClient:
    """Asks one endpoint, over one connection that is kept. Use it as a context, or `close` it."""

    def __init__(
        self, url: str, *, token: str | None = None, seconds: float = 30.0, tls: ssl.SSLContext | None = None
    ) -> None:
        """`url` is like "https://scores.example:8080"; `tls` has authorities and, for mutual TLS, a certificate."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise SettingsError(f"the endpoint is {url!r}; write it like 'https://scores.example:8080'")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if parts.scheme == "https":
            self._line: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=seconds, context=tls or ssl.create_default_context()
            )
        else:
            self._line = http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
        self._place = f"{parts.hostname}:{self._line.port}"

    def __enter__(self) -> EndpointClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the next call opens another."""
        self._line.close()

    def model(self, name: str, version: str | None = None) -> dict[str, Any]:
        """Inputs, outputs and versions of a model."""
        found: dict[str, Any] = json.loads(self._call("GET", _path(name, version), b"", {})[0])
        return found

    def is_ready(self, name: str, version: str | None = None) -> bool:
        """Whether requests would have scores now."""
        try:
            self._call("GET", f"{_path(name, version)}/ready", b"", {})
        except RequestRefused as refused:
            if refused.status != 503:
                raise
            return False
        return True

    def predict(
        self,
        name: str,
        ids: Ids | Mapping[str, Ids],
        *,
        version: str | None = None,
        deadline: float | None = None,
    ) -> Predictions:
        """The joint scores of ids, or by name of several id columns; raises `RequestRefused` where there are none.

        `deadline` is in seconds; the endpoint's own is the most.
        """
        columns = dict(ids) if isinstance(ids, Mapping) else {"id": ids}
        tensors = {column: _tensor(values) for column, values in columns.items()}
        inputs = [
            {
                "name": column,
                "datatype": "BYTES",
                "shape": [len(columns[column])],
                "parameters": {"binary_data_size": len(raw)},
            }
            for column, raw in tensors.items()
        ]
        parameters: dict[str, Any] = {"binary_data_output": True}
        if deadline is not None:
            parameters["timeout"] = round(deadline * 1e6)
        head = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
        body = b"".join([head, *tensors.values()])
        headers = {"Content-Type": "application/octet-stream", _HEADER_LENGTH: str(len(head))}
        raw, length = self._call("POST", f"{_path(name, version)}/infer", body, headers)
        return _predictions(raw, length)

    def _call(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[bytes, int | None]:
        """The body of the response, and how much of it is JSON where the rest is tensors."""
        for last in (False, True):
            is_kept = self._line.sock is not None
            try:
                self._line.request(method, path, body or None, {**self._headers, **headers})
                response = self._line.getresponse()
                raw = response.read(_MOST_ANSWER + 1)
                break
            except (OSError, http.client.HTTPException) as error:
                self._line.close()
                # The endpoint ends connections that were idle; asking again for the same bits is no further release.
                if last or not is_kept or isinstance(error, TimeoutError):
                    raise ExchangeError(f"the endpoint at {self._place} does not answer: {error}") from None
        if len(raw) > _MOST_ANSWER:
            self._line.close()
            raise ExchangeError(f"the endpoint at {self._place} answers with over {_MOST_ANSWER} bytes")
        if response.status != 200:
            raise RequestRefused(response.status, _message(raw, response.status))
        length = response.headers.get(_HEADER_LENGTH)
        return raw, None if length is None else int(length)


def _path(name: str, version: str | None) -> str:
    place = f"/v2/models/{quote(name, safe='')}"
    return place if version is None else f"{place}/versions/{quote(version, safe='')}"


def _tensor(ids: Ids) -> bytes:
    texts = [str(each).encode() for each in ids]
    return b"".join([_LENGTH.pack(len(each)) + each for each in texts])


def _message(raw: bytes, status: int) -> str:
    try:
        return shown(str(json.loads(raw)["error"]), 800)
    except (ValueError, KeyError, TypeError):
        return f"the endpoint answers with status {status}"


def _predictions(raw: bytes, length: int | None) -> Predictions:
    try:
        content = json.loads(raw if length is None else raw[:length])
        found, at = dict[str, NDArray[Any]](), length or 0
        for tensor in content["outputs"]:
            size = tensor["parameters"]["binary_data_size"]
            found[tensor["name"]] = _array(tensor, memoryview(raw)[at : at + size])
            at += size
        return Predictions(
            content["model_version"],
            found["score"],
            found.get("probability"),
            found["prediction"],
            found["answered"],
            found["missing"],
            found["why"],
            found.get("asked"),
        )
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise ExchangeError(f"the endpoint's answer cannot be read: {type(error).__name__}") from None


def _array(tensor: Mapping[str, Any], raw: memoryview) -> NDArray[Any]:
    if tensor["datatype"] == "BOOL":
        return np.frombuffer(raw, np.bool_).reshape(tensor["shape"])
    if tensor["datatype"] == "FP64":
        return np.frombuffer(raw, "<f8").reshape(tensor["shape"])
    (rows,) = tensor["shape"]
    texts, at, whole = np.empty(rows, object), 0, bytes(raw)
    for row in range(rows):
        (length,) = _LENGTH.unpack_from(whole, at)
        at += 4 + length
        texts[row] = whole[at - length : at].decode()
    return texts
