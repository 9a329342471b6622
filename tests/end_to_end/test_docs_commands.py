"""The commands of operations, watching and prediction, typed as the pages have them, over one small federation."""

import re
import shlex
import shutil
import signal
import subprocess
from contextlib import ExitStack

import pytest

from benchmarks.ports import reserved_port
from tests.cli.commands import call
from tests.docs.fenced import block_of, commands
from tests.end_to_end.cluster import Started, Terminal, until
from tests.end_to_end.test_readme import check

pytestmark = pytest.mark.slow
SECONDS = 300.0
OPERATIONS, WATCHING, SERVING = "docs/operations.md", "docs/watching.md", "docs/serving.md"
POLICY = '\n[policy]\naccept = "policy"\n'
TOO_LATE = ("approve", "refuse", "stop")
"""Commands that a run which is over refuses, by its name."""
ELSEWHERE = ("tune",)
"""Commands of a block that have a test of their own: tests/end_to_end/test_tuning.py."""


class Federation:
    """The folder in which everything is typed, and what goes on there."""

    def __init__(self, home, port, monkeypatch):
        self.home, self.port = home, port
        self._monkeypatch = monkeypatch
        self._started = []

    def start(self, words, folder=".", *more):
        """Start a command that goes on; its files are named from another folder than its own.

        One that starts a page beside itself is started as at a terminal: the page's pipe is a real one.
        """
        here = [self.home / folder / word if word.endswith(".toml") else word for word in words]
        log = self.home / f"{words[0]}-{len(self._started)}.log"
        kind = Terminal if "--web" in words else Started
        self._started.append(kind(log, *here, *more))
        return self._started[-1]

    def type(self, words, folder=".", code=0):
        """Type a command and wait for its end; gives all that it says."""
        self.go_to(folder)
        ended = call(*words)
        assert ended.exit_code == code, f"fdml {shlex.join(words)}\n{ended.output}{ended.exception!r}"
        return ended.output if code == 0 else str(ended.exception)

    def go_to(self, folder):
        """What is typed next is typed there."""
        self._monkeypatch.chdir(self.home / folder)

    def stop(self):
        for each in self._started:
            if each.code is None:
                each.kill()
        self._started.clear()


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """A federation whose run `first` has been trained by `fdml serve` and `fdml join`."""
    with reserved_port() as port, ExitStack() as stack:
        found = Federation(tmp_path_factory.mktemp("typed"), port, stack.enter_context(pytest.MonkeyPatch.context()))
        stack.callback(found.stop)
        (new,) = commands(block_of(OPERATIONS, "fdml new shop"))
        found.type([*new, "--server", f"127.0.0.1:{port}"])
        (looked,) = commands(block_of(OPERATIONS, "fdml check"))
        found.type(looked)
        server, _, other = commands(block_of(OPERATIONS, "fdml serve shop/federation.toml --run"))
        *_, own = commands(block_of(WATCHING, "fdml watch party.toml"))
        sides = [found.start(server), found.start(other), found.start(own, "shop/store", "--web-listen", "127.0.0.1:0")]
        for each in sides:
            each.expect(0, seconds=SECONDS)
        assert "page: http" in sides[-1].text
        yield found


def test_the_commands_of_watching_do_what_the_page_says(federation):
    home = federation.home
    (home / "run").symlink_to("shop")
    simulate, compare = commands(block_of(WATCHING, "fdml simulate run/run.toml"))
    federation.start(simulate).expect(0, "held-out rows, model of epoch", seconds=SECONDS)
    assert "of the rows that run 'first' held out" in " ".join(federation.type(compare).split())
    shutil.copy(home / "shop" / "store" / "data.csv", home / "shop" / "store" / "people.csv")
    again, printed, compared = commands(block_of(WATCHING, "fdml report party.toml"))
    federation.type(again, "shop/store")
    if shutil.which("chromium") is not None:
        federation.type(printed, "shop/store")
        assert (home / "shop" / "store" / "report.pdf").read_bytes().startswith(b"%PDF")
    (home / "shop" / "store" / "out").mkdir()
    label = ["income" if word == "rich" else word for word in compared]
    federation.type([*label, "--ignore", "user_id", "--models", "linear", "--epochs", "2"], "shop/store")
    assert "<!doctype html>" in (home / "shop" / "store" / "out" / "report.html").read_text()


def test_the_live_page_opens_by_each_of_its_commands(federation):
    at_party, at_server, _ = commands(block_of(WATCHING, "fdml watch party.toml"))
    pages = [
        federation.start(at_party, "shop/store", "--listen", "127.0.0.1:0"),
        federation.start(at_server, "shop", "--listen", "127.0.0.1:0"),
    ]
    for page in pages:
        until(lambda page=page: "page: http" in page.text, "a page", SECONDS)
    federation.stop()


def test_the_commands_of_a_standing_federation_do_what_the_pages_say(federation):
    home = federation.home
    for party in ("store", "browser"):
        with (home / "shop" / party / "party.toml").open("a") as file:
            file.write(POLICY)
    text = (home / "shop" / "run.toml").read_text()
    (home / "shop" / "second.toml").write_text(
        text.replace('"first"', '"second"').replace('epochs = "auto"', "epochs = 2")
    )
    standing = [
        federation.start(words) for words in commands(block_of(OPERATIONS, "fdml serve shop/federation.toml   "))
    ]
    lines = list(commands(block_of(OPERATIONS, "cd shop/store")))
    ask_until(federation, lines[0], "")
    until(lambda: "finished" in federation.type(["runs", "show", "second"], "shop/store"), "the end", SECONDS)
    for words in lines[1:]:
        if words[0] in ELSEWHERE:
            continue
        if words[1] in TOO_LATE:
            assert "second" in federation.type(words, "shop/store", code=1)
        else:
            assert federation.type(words, "shop/store").strip()
    predict(federation)
    evaluate_and_miss(federation, standing[-1])
    federation.stop()


def ask_until(federation, words, said):
    """Type a command until it ends well: others may not be there yet."""
    federation.go_to("shop/store")

    def ends_well():
        ended = call(*words)
        return ended.exit_code == 0 and said in ended.output

    until(ends_well, f"fdml {shlex.join(words)}", SECONDS)


def shown(block, command):
    """The lines that a page shows below a command of one of its blocks, up to the next."""
    _, _, below = block.text.partition(f"$ {command}")
    return [line for line in below.partition("\n$ ")[0].splitlines()[1:] if not line.startswith("...")]


def predict(federation):
    store = federation.home / "shop" / "store"
    ids = [line.split(",")[0] for line in (store / "data.csv").read_text().splitlines()[1:6]]
    (store / "ids.csv").write_text("\n".join(["user_id", *ids, "user-99999"]) + "\n")
    block = block_of(SERVING, "$ fdml predict party.toml --ids ids.csv --out scores.csv\n")
    (words,) = commands(block)
    ask_until(federation, words, "5 of 6 rows")
    check(shown(block, "fdml predict"), federation.type(words, "shop/store").replace("'second'", "'first'"))
    check(shown(block, "cat scores.csv")[:1], (store / "scores.csv").read_text())
    answer_callers(federation)


def answer_callers(federation):
    block = block_of(SERVING, "$ fdml endpoint party.toml --port 8080")
    (words,) = commands(block)
    endpoint = federation.start([*words[:-1], "0"], "shop/store")
    until(lambda: "answers callers at" in endpoint.text, "the endpoint", SECONDS)
    port = re.search(r"answers callers at http://127.0.0.1:(\d+)", endpoint.text)[1]
    asked = block.text[block.text.index("curl") :].splitlines()[0].replace("models/first", "models/second")
    typed = asked.replace(":8080", f":{port}")
    said = subprocess.run(typed, shell=True, capture_output=True, text=True, check=True, timeout=60).stdout
    assert '"parties_missing": "store,browser"' in said
    python = block_of(SERVING, "import numpy as np\nimport tritonclient").text
    exec(python.replace(":8080", f":{port}").replace('"first"', '"second"'), {})
    endpoint.kill()


def evaluate_and_miss(federation, other):
    block = block_of(SERVING, "$ fdml evaluate")
    (words,) = commands(block)
    said = federation.type(words, "shop/store")
    assert "800 of 800 rows have a score" in said
    other.send(signal.SIGSTOP)
    block = block_of(SERVING, "$ fdml predict party.toml --ids ids.csv --out scores.csv --deadline 2")
    (words,) = commands(block)
    (federation.home / "shop" / "store" / "scores.csv").unlink()
    check(shown(block, "fdml predict"), federation.type(words, "shop/store").replace("'second'", "'first'"))
    other.send(signal.SIGCONT)


def test_scores_in_python_and_what_is_forgotten(federation):
    python = block_of(SERVING, "import fdml").text
    found: dict[str, object] = {}
    federation.go_to(".")
    exec(python, found)
    assert found["table"].num_rows == 2
    for words in commands(block_of(OPERATIONS, "fdml forget")):
        federation.type([*words, "--yes"])
    assert (federation.home / "shop" / "store" / "runs" / "first" / "forgotten").exists()
