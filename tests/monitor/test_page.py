"""The page in a browser, with states that a test publishes: what stands on it, how it is used, and what it asks for."""

import json
import threading

import pytest

from fdml.monitor.live import LiveFacts, LiveRun
from fdml.monitor.page_server import PageServer, Published
from fdml.monitor.status import PartyStatus, RunStatus
from tests.monitor.browser import IS_HERE, WHY_NOT, browser
from tests.monitor.sample_events import Clock

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not IS_HERE, reason=WHY_NOT)]
SHARES = {"computing": 0.7, "waiting": 0.25, "line": 0.05}
HOSTILE = "<img src=x onerror=alert(1)>"


def curve(title, values, levels=()):
    epochs = [float(at) for at in range(1, len(values) + 1)]
    return {"title": title, "epoch": epochs, "seconds": epochs, "values": values, "levels": [list(x) for x in levels]}


def state(waiting=0.0, epochs=3, starts=1, **more):
    """A run of which ann waits for bob so long."""
    live = LiveRun(LiveFacts("first", "ann", ("ann", "bob"), 60.0, 100.0, 10, 20), Clock())
    waits = {"waits_for": ("bob",), "waiting_seconds": waiting} if waiting else {}
    ann = PartyStatus("ann", connected=True, served=41, pushed=41, incarnation=1, bytes_in=2_500_000, **waits)
    bob = PartyStatus("bob", connected=True, served=41, pushed=41, incarnation=starts)
    live.note(RunStatus("first", 200, (ann, bob)))
    said = live.sentence
    values = [0.5 / at for at in range(1, epochs + 1)]
    return {
        "run": "first",
        "side": "ann",
        "sentence": {"text": said.text, "level": said.level, "advice": said.advice},
        "steps": 200,
        "step": 42,
        "seconds_left": None,
        "parties": [
            {**row, "shares": SHARES if row["own"] else {"waiting": 0.25, "rest": 0.75}} for row in live.rows()
        ],
        "refused": {"gap": 2},
        "curves": {
            "test_loss": curve("Held-out loss", values),
            "test_metric": curve("Held-out AUC", values, [("ann alone", 0.25)]),
        },
        "levels_note": "ann alone is added when the run ends.",
        "privacy": ["training rows: released 5 times without noise; there is no epsilon to state."],
        "rows": {
            "shared": 4000,
            "train": 3200,
            "held_out": 800,
            "lost": {"have no id": 3, "are not held by all others": 1500},
        },
        "accounts": None,
        "serving": None,
        "lag": {"0": 30, "1": 10},
        "settings": [["run hash", "ab12"], ["training.seed", "7"]],
        "next": ["After a crash this goes on where the party stopped:", "fdml join party.toml"],
        **more,
    }


@pytest.fixture(scope="module")
def window():
    with browser() as found:
        yield found


@pytest.fixture
def page(window):
    """A server with an open page; the test ends without a word in the console or a request outside."""
    published = Published()
    with PageServer("127.0.0.1", 0, published, str) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        published.publish(state())
        for kind in ("browser", "performance"):
            window.log(kind)
        window.size(1200, 1000)
        window.open(server.address)
        window.until(lambda: window.text("#title") == "Run first, seen by ann", "the first state")
        yield server
        asked = window.requests()
        assert asked
        assert {url for url in asked if not url.startswith(server.address)} == set()
        assert window.log("browser") == []
        window.open("about:blank")
        published.close()
        server.shutdown()


def test_the_page_shows_the_state_as_it_was_published(page, window):
    assert window.text("#sentence") == "Step 42 of 200, epoch 5 of 20."
    assert window.texts("#parties tbody tr td:first-child") == ["ann (this one)", "bob"]
    assert window.texts("#chart-test_loss .last strong") == [f"{0.5 / 3:.4f}"]
    assert window.texts("#chart-test_metric .legend li") == ["joint 0.1667", "ann alone 0.2500"]
    assert window.text("#chart-test_loss .legend") == "", "one line needs no legend"
    assert window.text("#refused") == "Refused messages: 2 gap."
    assert "no epsilon to state" in window.text("#privacy")
    assert "4,000 rows are shared by all: 3,200 to train on, 800 held out." in window.text("#rows")
    assert window.text("#lost-rows").endswith(
        "not used: 3 rows that have no id, 1,500 rows that are not held by all others."
    )
    window.click("#lag-box summary")
    assert window.texts("#lag tbody tr:first-child td") == ["0", "30", "75.0 %"]
    assert window.run("return document.querySelectorAll('#lag-bars .bar').length") == 2
    cells = window.texts("#parties tbody tr:first-child td")
    assert cells[5] == "25 % waiting, 5 % line"
    spoken = "return document.querySelector('#parties .share').getAttribute('aria-label')"
    assert window.run(spoken) == "Share of time: computing 70 %, waiting 25 %, line 5 %"
    assert cells[9] == "connected"
    assert window.text("#ledger") == window.text("#serving") == ""
    assert window.texts("#settings tbody tr td") == ["run hash", "ab12", "training.seed", "7"]
    assert window.text("#resume") == "fdml join party.toml"


def test_who_holds_up_the_run_stands_out_and_turns_red_when_it_is_late(page, window):
    page.published.publish(state(waiting=4.2))
    window.until(lambda: "Waiting for bob, 4.2 s so far" in window.text("#sentence"), "who is waited for")
    assert window.text("#advice").startswith("Ask bob whether its process runs")
    assert window.texts("#parties tr.held td:first-child") == ["bob"]
    assert window.texts("#parties td:nth-child(2)") == ["waits for bob, 4.2 s", "holds up the others, 4.2 s"]
    page.published.publish(state(waiting=31.0))
    red = "return document.querySelector('#sentence').classList.contains('late')"
    window.until(lambda: window.run(red), "the colour of a late run")
    page.published.publish(state())
    window.until(lambda: window.text("#sentence").endswith("of 20."), "the end of the wait")
    assert window.text("#advice") == ""


def test_a_restart_is_shown(page, window):
    page.published.publish(state(starts=3))
    window.until(lambda: window.texts("#parties tbody tr:last-child td:last-child") == ["2"], "two restarts")


def test_every_chart_has_its_numbers_as_a_table(page, window):
    window.click("#chart-test_metric summary")
    rows = window.until(lambda: window.texts("#chart-test_metric tbody tr"), "the table")
    assert [row.split() for row in rows] == [[str(at), f"{at:.1f}", f"{0.5 / at:.4f}", "0.2500"] for at in (1, 2, 3)]


def test_late_fusion_and_pooled_are_lines_of_their_own_where_they_are_known(page, window):
    levels = [("ann alone", 0.25), ("late fusion", 0.3), ("pooled", 0.4)]
    curves = {"test_metric": curve("Held-out AUC", [0.2, 0.3, 0.35], levels)}
    page.published.publish(state(curves=curves, levels_note="Late fusion and pooled training by `fdml compare`."))
    window.until(lambda: "pooled 0.4000" in window.text("#chart-test_metric .legend"), "the lines")
    kinds = "return [...document.querySelectorAll('#chart-test_metric .swatch line')].map(e => e.getAttribute('class'))"
    assert window.run(kinds) == ["line joint", "line alone", "line fusion", "line pooled"]
    assert window.text("#levels-note") == "Late fusion and pooled training by fdml compare."
    assert window.texts("#levels-note code") == ["fdml compare"]
    window.run("document.querySelector('#chart-test_metric details').open = true")
    rows = window.until(lambda: window.texts("#chart-test_metric tbody tr"), "the table")
    assert rows[-1].split() == ["3", "3.0", "0.3500", "0.2500", "0.3000", "0.4000"]


def test_curves_may_go_by_time(page, window):
    window.click("#across input[value=seconds]")
    window.until(lambda: window.run("return document.querySelector('#across input:checked').value === 'seconds'"), "it")
    page.published.publish(state(epochs=4))
    window.until(lambda: window.text("#chart-test_loss .last strong") == f"{0.5 / 4:.4f}", "one epoch more")


def test_the_longest_series_is_drawn(page, window):
    page.published.publish(state(epochs=2000))
    window.until(lambda: window.text("#chart-test_loss .last").endswith("in epoch 2000"), "all epochs")
    painted = """const c = document.querySelector('#chart-test_loss canvas'); const d = c.getContext('2d')
        .getImageData(0, 0, c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0;
        return n"""
    assert window.run(painted) > 500


def test_names_and_settings_stay_text(page, window):
    page.published.publish(state(run=HOSTILE, settings=[[HOSTILE, HOSTILE]], privacy=[HOSTILE]))
    window.until(lambda: HOSTILE in window.text("#title"), "the name")
    assert window.run("return document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [500, 1200])
def test_the_page_fits_its_window_in_light_and_dark(page, window, scheme, width):
    window.scheme(scheme)
    window.size(width, 900)
    page.published.publish(state(epochs=5))
    window.until(lambda: window.text("#chart-test_loss .last").endswith("in epoch 5"), "a new epoch")
    wide = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    window.until(lambda: (lambda sizes: sizes[0] <= sizes[1])(window.run(wide)), "no scrolling sideways")
    back = window.run("return getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 22, 29)"}[scheme]


def test_the_page_is_used_by_keyboard(page, window):
    focus = "return [...document.querySelectorAll('a,button,input,summary,[tabindex]')].every(e => e.tabIndex >= 0)"
    assert window.run(focus)
    assert window.run("return document.querySelector('#sentence').getAttribute('role')") == "status"
    labelled = "return [...document.querySelectorAll('section')].every(e => e.getAttribute('aria-labelledby'))"
    assert window.run(labelled)


def test_the_page_finds_its_server_again(window):
    published = Published()
    first = PageServer("127.0.0.1", 0, published, str)
    threading.Thread(target=first.serve_forever, args=(0.02,), daemon=True).start()
    published.publish(state())
    window.open(first.address)
    window.until(lambda: window.text("#title") == "Run first, seen by ann", "the first state")
    published.close()
    first.shutdown()
    first.server_close()
    window.until(lambda: "trying again" in window.text("#lost"), "word of the lost line")
    again = Published()
    again.publish(state(waiting=3.0))
    with PageServer("127.0.0.1", first.port, again, str) as second:
        threading.Thread(target=second.serve_forever, args=(0.02,), daemon=True).start()
        window.until(lambda: "Waiting for bob" in window.text("#sentence"), "the second server")
        assert window.text("#lost") == ""
        window.open("about:blank")
        again.close()
        second.shutdown()
    window.log("browser")


def test_a_state_is_plain_json():
    assert json.loads(json.dumps(state(), allow_nan=False))["run"] == "first"
