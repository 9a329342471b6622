"""The live page of a run of real processes, in a real browser: what is on it is what happens."""

import json
import re
import signal

import pytest

from tests.end_to_end.cluster import RUN, Started, running, until
from tests.monitor.browser import IS_HERE, WHY_NOT, browser

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not IS_HERE, reason=WHY_NOT)]
EPOCHS = 400
NAMED_SECONDS = 3.0
"""A party that stands still is named within so much of the others' wait."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A run, its page as ann sees it, and the address of that page."""
    with running(tmp_path_factory.mktemp("watch") / "run", epochs=EPOCHS) as cluster, browser() as window:
        page = Started(
            cluster.home / "watch.log", "watch", cluster.home / "ann" / "party.toml", "--listen", "127.0.0.1:0"
        )
        try:
            until(lambda: "page: http" in page.text, "the page is served")
            address = re.search(r"page: (\S+)", page.text)[1]
            window.open(address)
            yield cluster, window, address
        finally:
            page.kill()


def sentence(window):
    return window.text("#sentence")


def test_the_page_tells_what_happens_from_the_beginning_to_the_end(watched):
    cluster, window, address = watched
    window.until(lambda: "has not answered" in sentence(window), "word that no server is there")

    cluster.start()
    window.until(lambda: re.match(r"Step [\d,]+ of [\d,]+, epoch \d+ of 400", sentence(window)), "the first steps", 60)

    # A party that stands still is named, with what to do.
    cluster["bob"].send(signal.SIGSTOP)
    window.until(lambda: "Waiting for bob, " in sentence(window), "the name of who stands still")
    assert float(re.search(r"bob, ([\d.]+) s so far", sentence(window))[1]) <= NAMED_SECONDS
    assert "Ask bob whether its process runs" in window.text("#advice")
    assert window.texts("#parties tr.held td:first-child") == ["bob"]
    window.until(lambda: window.run("return document.querySelector('#sentence').classList.contains('late')"), "red", 40)
    cluster["bob"].send(signal.SIGCONT)
    window.until(lambda: "Waiting" not in sentence(window), "that bob goes on")

    # A party that is killed is gone, and its restart is counted.
    cluster["bob"].kill()
    window.until(lambda: "bob is gone" in sentence(window), "that bob is gone")
    assert "Start fdml join again at bob" in window.text("#advice")
    cluster.join("bob")
    window.until(lambda: window.texts("#parties tbody tr:last-child td:last-child") == ["1"], "the restart of bob")

    # A server that is started again is found again.
    cluster["server"].kill()
    window.until(lambda: "The server has not answered" in sentence(window), "that the server is gone")
    cluster.serve()
    window.until(lambda: sentence(window).startswith("Step "), "that the server is back")

    cluster.finish(240.0)
    window.until(lambda: sentence(window).startswith("Finished"), "the end")
    history = json.loads((cluster.home / "ann" / RUN / "history.json").read_text())
    assert len(history) == EPOCHS
    last = f"in epoch {EPOCHS}"
    window.until(lambda: last in window.text("#chart-test_metric .last"), "the last epoch")
    for name in ("train_loss", "test_loss", "test_metric"):
        window.run("document.querySelector(arguments[0]).open = true", f"#chart-{name} details")
        window.until(lambda name=name: window.texts(f"#chart-{name} tbody tr"), "the table")
        cells = [row.split() for row in window.texts(f"#chart-{name} tbody tr")]
        assert [(int(row[0]), row[2]) for row in cells] == [(row["epoch"], f"{row[name]:.4f}") for row in history]
    assert "there is no epsilon to state" in window.text("#privacy")

    # It has asked nobody else, and has nothing to complain of.
    asked = window.requests()
    assert asked
    assert {url for url in asked if not url.startswith(address)} == set()
    assert window.log("browser") == []
