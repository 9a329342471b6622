"""The page's server: what it gives, to whom, and what it refuses."""

import hashlib
import http.client
import itertools
import json
import re
import socket
import threading
from contextlib import contextmanager
from importlib import resources

import pytest

from fdml.monitor.page_server import FILES, HEADERS, PageServer, Published

PAGE = resources.files("fdml.monitor").joinpath("page")
STYLES = ("theme.css", "page.css", "report.css")
TOKEN = "a-token-of-enough-letters"
UPLOT = {  # version 1.6.32, as npm has it
    "uplot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot-LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


@contextmanager
def served(token=None):
    published = Published()
    with PageServer("127.0.0.1", 0, published, lambda: "fdml_run_steps 1\n", token) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            published.close()
            server.shutdown()
            thread.join(10)


@pytest.fixture(scope="module")
def server():
    with served() as found:
        found.published.publish({"run": "first"})
        yield found


@pytest.fixture(scope="module")
def locked():
    with served(TOKEN) as found:
        yield found


def get(server, path="/", **headers):
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    line.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = line.getresponse()
    try:
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        line.close()


@pytest.mark.parametrize("path", FILES)
def test_every_file_of_the_page_is_here(server, path):
    status, headers, text = get(server, path)
    assert (status, headers["Content-Type"]) == (200, FILES[path][1])
    assert text == PAGE.joinpath(FILES[path][0]).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [*FILES, "/state", "/metrics", "/none"])
def test_every_answer_has_a_strict_policy_and_is_kept_nowhere(server, path):
    _, headers, _ = get(server, path)
    for name, value in HEADERS.items():
        assert headers[name] == value
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_state_and_metrics_are_what_was_published(server):
    assert json.loads(get(server, "/state")[2]) == {"run": "first"}
    assert get(server, "/metrics")[2] == "fdml_run_steps 1\n"
    assert get(server, "/none")[0] == 404
    assert get(server, "/../page_server.py")[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/state", "/events", "/metrics"])
def test_other_hosts_and_origins_are_refused(server, headers, path):
    given = {name: value.format(port=server.port) for name, value in headers.items()}
    assert get(server, path, **given)[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_the_own_origin_is_answered(server, host):
    mine = f"{host}:{server.port}"
    headers = {"Host": mine, "Origin": f"http://{mine}", "Sec-Fetch-Site": "same-origin"}
    assert get(server, "/state", **headers)[0] == 200


def test_other_methods_are_refused(server):
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    line.request("POST", "/state", body=b"{}")
    assert line.getresponse().status == 501
    line.close()


def test_a_stream_tells_every_change():
    with served() as server:
        line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        server.published.publish({"step": 1})
        line.request("GET", "/events")
        answer = line.getresponse()
        assert answer.getheader("Content-Type") == "text/event-stream; charset=utf-8"
        assert answer.fp.readline() == b"retry: 1000\n"
        answer.fp.readline()
        assert answer.fp.readline() == b'data: {"step":1}\n'
        answer.fp.readline()
        server.published.publish({"step": 2})
        assert answer.fp.readline() == b'data: {"step":2}\n'
        line.close()


def test_a_stream_ends_with_the_server():
    published = Published()
    published.close()
    assert published.newer(0, 10.0) == (-1, None)


def test_without_news_there_is_none():
    published = Published()
    assert published.newer(0, 0.01) == (0, None)
    published.publish({"a": 1})
    assert published.newer(0, 10.0) == (1, '{"a":1}')


def test_no_more_than_so_many_look_at_once():
    with served() as server:
        while server.viewers.acquire(blocking=False):
            pass
        assert get(server, "/events")[0] == 503
        assert get(server, "/state")[0] == 200


def test_nobody_looks_without_the_token(locked):
    for path in (*FILES, "/state", "/events", "/metrics"):
        assert get(locked, path)[0] == 401
    assert get(locked, "/?token=another-one-of-letters")[0] == 401
    assert get(locked, "/state", Authorization="Bearer wrong")[0] == 401
    assert get(locked, "/state", Cookie="fdml-page=wrong")[0] == 401
    assert get(locked, "/state", Cookie="=;=;;")[0] == 401


def test_the_token_becomes_a_cookie_that_no_script_reads(locked):
    assert locked.address.endswith(f"/?token={TOKEN}")
    status, headers, _ = get(locked, f"/?token={TOKEN}")
    assert (status, headers["Location"]) == (303, "/")
    assert headers["Set-Cookie"] == f"fdml-page={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
    assert get(locked, "/state", Cookie=f"fdml-page={TOKEN}")[0] == 200
    assert get(locked, "/metrics", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_under_any_address_but_the_usual_ones_of_loopback_there_is_always_a_token():
    with PageServer("127.0.0.2", 0, Published(), str) as server:
        assert len(server.token) >= 24
        assert server.allows_host(f"store.example:{server.port}"), "the token guards it"
    with PageServer("127.0.0.1", 0, Published(), str) as server:
        assert server.token is None
        assert server.address == f"http://127.0.0.1:{server.port}/"


def test_a_viewer_that_says_nothing_or_rubbish_does_no_harm(server):
    for sent in (b"", b"\r\n\r\n", b"rubbish\r\n\r\n", b"GET / HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as line:
            line.sendall(sent)
    assert get(server)[0] == 200


@pytest.mark.parametrize("name", UPLOT)
def test_the_charting_library_is_the_one_that_was_published(name):
    assert hashlib.sha256(PAGE.joinpath(name).read_bytes()).hexdigest() == UPLOT[name]


def test_the_page_names_nothing_outside_and_has_no_script_or_style_of_its_own():
    text = PAGE.joinpath("page.html").read_text(encoding="utf-8")
    named = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert set(named) <= set(FILES)
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", text)
    for name in ("page.js", "page.css", "theme.css"):
        content = PAGE.joinpath(name).read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", content)
    script = PAGE.joinpath("page.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(", script)


def test_page_and_report_have_one_source_for_what_they_share():
    rules = {name: rules_of(PAGE.joinpath(name).read_text(encoding="utf-8")) for name in STYLES}
    for one, other in itertools.combinations(STYLES, 2):
        assert rules[one] & rules[other] == set()
    assert not [rule for name in STYLES[1:] for rule in rules[name] if re.search(r":#[0-9a-f]{3}", rule)], "colours"


def rules_of(text):
    """The rules of a style sheet; one within a rule for some screens counts as that."""
    return {"".join(rule.split()) for rule in re.findall(r"[^{}]+\{(?:[^{}]|\{[^{}]*\})*\}", text)}
