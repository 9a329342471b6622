"""What an endpoint counts, as Prometheus's own parser reads it, and that no caller's word is in it."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fdml.serving.online.request_counts import BOUNDS, RequestCounts
from tests.monitor.sample_events import Clock
from tests.serving.online.served import OpenEndpoint, asked

TOKEN = b"0123456789abcdef0123"


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_nothing_is_counted_before_the_first_request():
    counts = RequestCounts(Clock())
    assert counts.metrics() == ""
    assert counts.summary() == {
        "requests": 0, "refused": 0, "rows": 0, "requests_per_second": 0.0, "p50_seconds": None, "p99_seconds": None,
        "without": {},
    }  # fmt: skip


def test_requests_rows_and_times_are_counted_by_model_and_status():
    counts = RequestCounts(Clock())
    counts.note("first", 200, 0.004, rows=3, without=("bob",))
    counts.note("first", 200, 0.3, rows=1)
    counts.note("first", 504, 2.0)
    counts.note("", 404, 0.0001)
    found = samples(counts.metrics())
    assert found["fdml_endpoint_requests_total", ("model", "first"), ("status", "200")] == 2
    assert found["fdml_endpoint_requests_total", ("model", ""), ("status", "404")] == 1
    assert found["fdml_endpoint_rows_total", ("model", "first")] == 4
    assert found["fdml_endpoint_answered_without_total", ("model", "first"), ("party", "bob")] == 1
    assert found["fdml_endpoint_request_seconds_count", ("model", "first")] == 3
    assert found["fdml_endpoint_request_seconds_sum", ("model", "first")] == pytest.approx(2.304)
    buckets = [
        found["fdml_endpoint_request_seconds_bucket", ("le", f"{bound:g}"), ("model", "first")] for bound in BOUNDS
    ]
    assert buckets == sorted(buckets)
    assert dict(zip(BOUNDS, buckets, strict=True))[0.005] == 1
    assert dict(zip(BOUNDS, buckets, strict=True))[0.5] == 2
    assert found["fdml_endpoint_request_seconds_bucket", ("le", "+Inf"), ("model", "first")] == 3


def test_a_time_at_a_bound_is_in_its_bucket():
    counts = RequestCounts(Clock())
    counts.note("first", 200, 0.5)
    found = samples(counts.metrics())
    assert found["fdml_endpoint_request_seconds_bucket", ("le", "0.5"), ("model", "first")] == 1
    assert found["fdml_endpoint_request_seconds_bucket", ("le", "0.25"), ("model", "first")] == 0


def test_a_person_reads_the_last_minute():
    clock = Clock()
    counts = RequestCounts(clock)
    counts.note("first", 200, 9.0)
    clock.now += 100
    for number in range(100):
        counts.note("first", 200 if number else 503, (number + 1) / 1000, rows=2, without=("bob",) * (number < 2))
    found = counts.summary()
    assert (found["requests"], found["refused"], found["rows"]) == (101, 1, 200)
    assert found["requests_per_second"] == pytest.approx(100 / 60)
    assert (found["p50_seconds"], found["p99_seconds"]) == (0.051, 0.1), "the slow one was earlier"
    assert found["without"] == {"bob": 2}


def test_what_is_kept_does_not_grow_with_the_requests(monkeypatch):
    clock = Clock()
    counts = RequestCounts(clock)
    for _ in range(30_000):
        clock.now += 0.001
        counts.note("first", 200, 0.001)
    assert len(counts._last_requests) == 10_000
    assert counts.summary()["requests_per_second"] == pytest.approx(1000, rel=0.01), "by those that are kept"


def test_an_endpoint_counts_answers_and_refusals_and_no_caller_s_word():
    with OpenEndpoint() as served:
        served.infer(asked("r1", "stranger"))
        served.infer(asked("r1"), "/v2/models/canary-name/infer")
        served.infer(b"{")
        status, headers, body = served.call("GET", "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = samples(body.decode())
    assert found["fdml_endpoint_requests_total", ("model", "first"), ("status", "200")] == 1
    assert found["fdml_endpoint_requests_total", ("model", ""), ("status", "404")] == 1
    assert found["fdml_endpoint_requests_total", ("model", "first"), ("status", "400")] == 1
    assert found["fdml_endpoint_answered_without_total", ("model", "first"), ("party", "bob")] == 1
    for canary in (b"canary-name", b"stranger", b"r1"):
        assert canary not in body


def test_metrics_need_the_token_where_there_is_one():
    with OpenEndpoint(token=TOKEN) as served:
        assert served.call("GET", "/metrics")[0] == 401
        assert served.call("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN.decode()}"})[0] == 200
        served.infer(asked("r1"))
        _, _, body = served.call("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN.decode()}"})
    assert samples(body.decode())["fdml_endpoint_requests_total", ("model", ""), ("status", "401")] == 1
    assert TOKEN not in body
