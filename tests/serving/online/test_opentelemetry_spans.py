"""Spans of requests: request, look-up, exchange; and that no id, score or token is in them."""

import json

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fdml.errors import SettingsError
from fdml.serving.online.opentelemetry_spans import spans_of, traced
from fdml.serving.online.spans import no_spans
from tests.serving.online.served import OpenEndpoint, asked, output

TOKEN = b"canarytoken0123456789"


@pytest.fixture
def kept():
    """Where spans go, and what opens them."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter, spans_of(provider)
    provider.shutdown()


def test_a_request_has_its_look_up_and_its_exchange_inside(kept):
    exporter, spans = kept
    with OpenEndpoint(spans=spans) as served:
        assert served.infer(asked("r1", "r2"))[0] == 200
    look_up, exchange, request = exporter.get_finished_spans()
    assert (look_up.name, exchange.name, request.name) == ("look-up", "exchange", "request")
    assert look_up.parent.span_id == exchange.parent.span_id == request.context.span_id
    assert request.parent is None
    assert dict(request.attributes) == {"fdml.model": "first", "fdml.rows": 2, "http.response.status_code": 200}
    assert request.start_time <= look_up.start_time <= exchange.start_time <= exchange.end_time <= request.end_time


def test_who_is_missing_and_which_status_are_told(kept):
    exporter, spans = kept
    with OpenEndpoint(spans=spans, seconds=1.0) as served:
        served.line.away = {"bob"}
        status, _ = served.infer(asked("r1"))
    found = {span.name: dict(span.attributes) for span in exporter.get_finished_spans()}
    assert found["request"]["http.response.status_code"] == status == 503
    assert found["exchange"]["fdml.parties_missing"] == "bob"


def test_no_id_score_or_token_is_in_any_span(kept):
    exporter, spans = kept
    with OpenEndpoint(ids=["canaryid1", "canaryid2"], token=TOKEN, spans=spans) as served:
        header = {"Authorization": f"Bearer {TOKEN.decode()}"}
        _, content = served.infer(asked("canaryid1"), **header)
        served.infer(
            {"inputs": [{"name": "canaryinput", "datatype": "BYTES", "shape": [1], "data": ["canaryid2"]}]}, **header
        )
        served.infer(asked("canaryid1"), "/v2/models/canarymodel/infer", **header)
        served.infer(asked("canaryid1"))
    (score,) = output(content, "score")
    text = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert text.count('"name": "request"') == 4
    assert "canary" not in text
    assert str(score) not in text
    assert all(not span.events for span in exporter.get_finished_spans()), "errors have words of callers"


def test_spans_go_to_a_file_as_json_lines(tmp_path):
    path = tmp_path / "spans.jsonl"
    for _ in range(2):
        with traced(str(path)) as spans, spans("request") as span:
            span.set_attributes({"fdml.rows": 3})
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["name"], each["attributes"]) for each in found] == 2 * [("request", {"fdml.rows": 3})]
    assert found[0]["resource"]["attributes"]["service.name"] == "fdml-endpoint"


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(SettingsError, match="cannot write the traces"), traced(str(tmp_path)):
        pass


def test_where_nobody_traces_nothing_is_kept():
    with no_spans("request") as span:
        span.set_attributes({"fdml.rows": 3})
