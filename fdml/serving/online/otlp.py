"""Spans to a collector by OTLP over HTTP, as JSON. OpenTelemetry's own variables of the environment say where."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import unquote, urlsplit

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from fdml.errors import SettingsError

DEFAULT = "http://localhost:4318"
"""Where a collector listens for OTLP over HTTP, if nothing else is said."""
_PATH = "/v1/traces"
_SECONDS = 10.0
_TRACES = "OTEL_EXPORTER_OTLP_TRACES_"
_ALL = "OTEL_EXPORTER_OTLP_"


class OtlpExporter(SpanExporter):
    """Sends spans once. What a collector does not take is lost: `on_loss` hears it, once until one is taken again."""

    def __init__(self, address: str, headers: Mapping[str, str], on_loss: Callable[[str], None]) -> None:
        if urlsplit(address).scheme not in ("http", "https"):
            raise SettingsError(
                f"the collector is {address!r}; {_ALL}ENDPOINT takes an address of OTLP over HTTP, such as {DEFAULT}"
            )
        self.address = address
        self._headers = {**headers, "Content-Type": "application/json"}
        self._on_loss = on_loss
        self._is_lost = False

    @classmethod
    def of(cls, environment: Mapping[str, str], on_loss: Callable[[str], None]) -> OtlpExporter:
        """The exporter that OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS and _PROTOCOL mean, or those of traces alone."""

        def found(name: str) -> str:
            return environment.get(f"{_TRACES}{name}") or environment.get(f"{_ALL}{name}") or ""

        if found("PROTOCOL") == "grpc":
            raise SettingsError(
                f"{_ALL}PROTOCOL is 'grpc'; --traces otlp speaks OTLP over HTTP, at the collector's port 4318: set "
                f"{_ALL}PROTOCOL=http/json, and {_ALL}ENDPOINT to that address"
            )
        exact = environment.get(f"{_TRACES}ENDPOINT")
        base = environment.get(f"{_ALL}ENDPOINT") or DEFAULT
        return cls(exact or f"{base.rstrip('/')}{_PATH}", _headers(found("HEADERS")), on_loss)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send these spans."""
        body = json.dumps(request_of(spans)).encode()
        asked = urllib.request.Request(self.address, body, self._headers, method="POST")  # noqa: S310 (checked above)
        try:
            with urllib.request.urlopen(asked, timeout=_SECONDS):  # noqa: S310
                self._is_lost = False
                return SpanExportResult.SUCCESS
        except (OSError, ValueError) as error:  # urllib's own errors are of the first kind
            if not self._is_lost:
                why = getattr(error, "reason", None) or type(error).__name__
                self._on_loss(f"traces are lost: {self.address} does not take them ({why})")
            self._is_lost = True
            return SpanExportResult.FAILURE


def request_of(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """The ExportTraceServiceRequest of some spans, in the JSON of OTLP: ids as hex, 64-bit numbers as text."""
    resources = []
    for _, of_resource in groupby(spans, lambda span: id(span.resource)):
        some = list(of_resource)
        resources.append(
            {
                "resource": {"attributes": _attributes(some[0].resource.attributes)},
                "scopeSpans": [
                    {"scope": {"name": name, "version": version}, "spans": [_span(span) for span in of_scope]}
                    for (name, version), of_scope in groupby(some, _scope)
                ],
            }
        )
    return {"resourceSpans": resources}


def _scope(span: ReadableSpan) -> tuple[str, str]:
    scope = span.instrumentation_scope
    return ("", "") if scope is None else (scope.name, scope.version or "")


def _span(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    trace, own = (0, 0) if context is None else (context.trace_id, context.span_id)
    parent = {} if span.parent is None else {"parentSpanId": f"{span.parent.span_id:016x}"}
    return {
        "traceId": f"{trace:032x}",
        "spanId": f"{own:016x}",
        **parent,
        "name": span.name,
        "kind": span.kind.value + 1,  # OTLP has a kind 0 for none
        "startTimeUnixNano": str(span.start_time or 0),
        "endTimeUnixNano": str(span.end_time or 0),
        "attributes": _attributes(span.attributes or {}),
        "status": {"code": span.status.status_code.value},
    }


def _attributes(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in found.items()]


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


def _headers(text: str) -> dict[str, str]:
    """Of 'name=value,name=value', as OpenTelemetry writes them; what is in them may be secret, so no error has it."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not equals or not name.strip() for name, equals, _ in pairs):
        raise SettingsError(f"{_ALL}HEADERS takes name=value, with commas between several")
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}
