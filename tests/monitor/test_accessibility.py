"""axe-core, the checker of others, finds no serious fault on the page and in the report: light, dark, on a phone."""

import threading

import pytest

from fdml.monitor.page_server import PageServer, Published
from fdml.monitor.report import render
from tests.monitor.browser import AXE_IS_HERE, WHY_NO_AXE, browser, faults
from tests.monitor.test_page import state
from tests.monitor.test_report import ALL, report_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not AXE_IS_HERE, reason=WHY_NO_AXE)]
ACCOUNTS = {
    "runs": [{"run": "first", "releases": 20, "evaluations": 20, "direct": 3.25, "record_level": None}],
    "spent": {"direct": 3.25, "record_level": None},
    "delta": 1e-6,
    "total": 10.0,
    "left": 6.75,
    "is_record_level": False,
}
SERVING = {
    "requests": 1200,
    "refused": 3,
    "rows": 4800,
    "requests_per_second": 20.5,
    "p50_seconds": 0.0042,
    "p99_seconds": 0.031,
    "without": {"bob": 7},
}


@pytest.fixture(scope="module")
def window():
    with browser() as found:
        yield found


def shape(window, scheme, width):
    window.scheme(scheme)
    window.size(1200, 1000)
    if width == "phone":
        window.phone()
    else:
        window.desktop()


@pytest.mark.parametrize("width", ["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_serious_fault(window, scheme, width):
    shape(window, scheme, width)
    published = Published()
    with PageServer("127.0.0.1", 0, published, str) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        published.publish(state(waiting=31.0, starts=3, accounts=ACCOUNTS, serving=SERVING))
        window.open(server.address)
        window.until(lambda: "Waiting for bob" in window.text("#sentence"), "the first state")
        assert "half of them within 4.2 ms (p50), 99 % within 31 ms (p99)" in window.text("#serving-text")
        assert window.text("#serving-without") == "Answered without: bob 7 times."
        assert "6.75 is left of guard.total_epsilon 10" in window.text("#spent")
        window.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert faults(window) == []
        window.open("about:blank")
        published.close()
        server.shutdown()


@pytest.mark.parametrize("width", ["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_has_no_serious_fault(window, scheme, width, tmp_path):
    shape(window, scheme, width)
    (tmp_path / "report.html").write_text(render(report_of(*ALL)))
    window.open((tmp_path / "report.html").as_uri())
    window.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert faults(window) == []


def test_a_fault_would_be_found(window, tmp_path):
    (tmp_path / "bad.html").write_text("<html><body><img src='x.png'><p style='color:#eee'>pale</p></body></html>")
    window.open((tmp_path / "bad.html").as_uri())
    assert {each.partition(" ")[0] for each in faults(window)} >= {"image-alt", "color-contrast"}
