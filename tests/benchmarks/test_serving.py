"""The benchmark of prediction: its callers count right, and a small federation has all its figures."""

import contextlib
import http.server
import threading

import pytest

from benchmarks.http_load import Load, load, request
from benchmarks.serving import run
from fdml.errors import FdmlError
from fdml.serving.online.inference import read_request


def test_a_request_is_one_of_the_protocol():
    head, _, body = request("/v2/models/first/infer", ["a", "bc"]).partition(b"\r\n\r\n")
    lines = dict(line.split(": ", 1) for line in head.decode().splitlines()[1:])
    assert int(lines["Content-Length"]) == len(body)
    asked = read_request(body, lines["Inference-Header-Content-Length"], 10)
    assert asked.inputs["id"].to_pylist() == ["a", "bc"]
    assert asked.is_binary


def test_quantiles_are_of_all_requests():
    found = Load(2.0, tuple(float(number) for number in range(100)))
    assert (found.per_second, found.quantile(0.5), found.quantile(0.99), found.quantile(1.0)) == (
        50.0,
        50.0,
        99.0,
        99.0,
    )


@contextlib.contextmanager
def answering(status):
    """A server that answers every request with one status; gives its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_every_answer_is_counted():
    with answering(200) as port:
        found = load(port, [request("/", ["a"])], 3, 0.2)
    assert len(found.latencies) > 3
    assert list(found.latencies) == sorted(found.latencies)


def test_an_answer_without_a_score_is_no_figure():
    with answering(503) as port, pytest.raises(FdmlError, match="answers with 503"):
        load(port, [request("/", ["a"])], 1, 5.0)


@pytest.mark.slow
def test_a_small_federation_has_all_figures():
    report = run(lambda _: None, rows=1000, rounds=1, seconds=0.5)
    figures = {row["contender"]: row["median"] for row in report.results}
    assert len(figures) == 13
    assert all(figures[name] > 0 for name in figures if "single rows" in name or "batch" in name)
    assert set(report.ratios) == {
        "single-row requests a second / 500",
        "50 ms / p99 of single rows",
        "rows a second in batch / 300,000",
    }
