"""Spans at a collector: what it reads is what was traced, and a collector that is gone disturbs nobody."""

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from fdml.errors import SettingsError
from fdml.serving.online.opentelemetry_spans import traced
from fdml.serving.online.otlp import DEFAULT, OtlpExporter
from tests.serving.online.collector import attributes, collecting
from tests.serving.online.served import OpenEndpoint, asked

ENDPOINT, HEADERS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("ENDPOINT", "HEADERS", "PROTOCOL"):
        for each in ("", "TRACES_"):
            monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{each}{name}", raising=False)


def test_a_collector_reads_the_spans_of_a_request(monkeypatch):
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.address + "/")
        with traced("otlp") as spans, OpenEndpoint(spans=spans) as served:
            assert served.infer(asked("r1", "r2"))[0] == 200
    (request,) = collector.requests
    (resource,) = request.resource_spans
    named = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert named["service.name"] == "fdml-endpoint"
    assert [scope.scope.name for scope in resource.scope_spans] == ["fdml"]
    look_up, exchange, whole = collector.spans
    assert (look_up.name, exchange.name, whole.name) == ("look-up", "exchange", "request")
    assert look_up.parent_span_id == exchange.parent_span_id == whole.span_id
    assert whole.parent_span_id == b""
    assert len(whole.trace_id) == 16
    assert look_up.trace_id == exchange.trace_id == whole.trace_id
    assert attributes(whole) == {"fdml.model": "first", "fdml.rows": 2, "http.response.status_code": 200}
    assert 0 < whole.start_time_unix_nano <= exchange.start_time_unix_nano <= whole.end_time_unix_nano
    assert whole.kind == Span.SPAN_KIND_INTERNAL
    assert whole.status.code == Status.STATUS_CODE_UNSET


def test_every_kind_of_value_arrives_as_itself(monkeypatch):
    values = {"text": "two words", "whole": -3, "part": 0.25, "yes": True, "large": 2**62}
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.address)
        with traced("otlp") as spans, spans("request") as span:
            span.set_attributes(values)
    assert attributes(collector.spans[0]) == values


def test_headers_of_the_environment_are_sent(monkeypatch):
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.address)
        monkeypatch.setenv(HEADERS, "api-key=a%20secret, x-tenant = shop")
        with traced("otlp") as spans, spans("request"):
            pass
    assert collector.headers[0]["Api-Key"] == "a secret"
    assert collector.headers[0]["X-Tenant"] == "shop"


def test_a_collector_that_takes_nothing_is_said_once_and_found_again(monkeypatch):
    said = []
    with collecting() as collector:
        exporter = OtlpExporter.of({ENDPOINT: collector.address}, said.append)
        for status, count in ((503, 1), (503, 1), (200, 1), (404, 2)):
            collector.status = status
            exporter.export([])
            assert len(said) == count
    assert said[0].startswith(f"traces are lost: {collector.address}/v1/traces does not take them (")
    exporter.export([])
    assert len(said) == 2, "nobody listens any more, which is still the same loss"


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, f"{DEFAULT}/v1/traces"),
        ({ENDPOINT: "https://otel.example:443/base/"}, "https://otel.example:443/base/v1/traces"),
        ({ENDPOINT: "http://x:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://y:2/own"}, "http://y:2/own"),
    ],
)
def test_the_environment_says_where_the_collector_is(environment, address):
    assert OtlpExporter.of(environment, print).address == address


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({ENDPOINT: "localhost:4317"}, "takes an address of OTLP over HTTP, such as http://localhost:4318"),
        ({ENDPOINT: "file:///etc/passwd"}, "takes an address of OTLP over HTTP"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "speaks OTLP over HTTP"),
        ({HEADERS: "very-secret"}, "takes name=value"),
    ],
)
def test_what_cannot_work_is_refused_and_no_secret_told(environment, words):
    with pytest.raises(SettingsError, match=words) as error:
        OtlpExporter.of(environment, print)
    assert "secret" not in str(error.value)
