"""A small collector: it takes OTLP over HTTP as JSON, and reads it with OpenTelemetry's own messages."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_IDS = ("traceId", "spanId", "parentSpanId")


class Collector(ThreadingHTTPServer):
    """What has come so far; `status` is what it answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        return [parsed(body) for body in self.bodies]

    @property
    def spans(self) -> list[Span]:
        found = (each for request in self.requests for each in request.resource_spans)
        return [span for each in found for scope in each.scope_spans for span in scope.spans]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        right = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
        if right and self.server.status == 200:
            self.server.bodies.append(body)
            self.server.headers.append(dict(self.headers))
        self.send_response(self.server.status if right else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def parsed(body: bytes) -> ExportTraceServiceRequest:
    """A body as a collector reads it: a field that OTLP has not is an error. Its JSON has ids as hex."""
    return ParseDict(_with_ids(json.loads(body)), ExportTraceServiceRequest())


def _with_ids(found: object) -> object:
    if isinstance(found, list):
        return [_with_ids(each) for each in found]
    if not isinstance(found, dict):
        return found
    return {
        name: base64.b64encode(bytes.fromhex(value)).decode() if name in _IDS else _with_ids(value)
        for name, value in found.items()
    }


def attributes(span: Span) -> dict[str, object]:
    """The attributes of a span."""
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of this machine."""
    with Collector() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join(10)
