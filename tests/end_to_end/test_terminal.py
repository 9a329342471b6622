"""Commands at a real terminal, a pseudo-terminal of the system: a live view there, and the plain lines in a pipe."""

import os
import pty
import re
import select
import subprocess
import time

import pytest

from tests.end_to_end.cluster import FDML, write_run

pytestmark = pytest.mark.slow
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HIDE, BRING_BACK = "\x1b[?25l", "\x1b[?25h"
"""What hides the cursor, and what brings it back."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terminal") / "run"
    write_run(folder, 0, ("ann", "bob"), 400, {"epochs": 40, "batches_per_block": 1})
    return folder


def at_a_terminal(*words, term="xterm-256color"):
    """The exit code of a command, and all that it wrote to its terminal."""
    ours, theirs = pty.openpty()
    surroundings = {name: value for name, value in os.environ.items() if name != "CI"}
    surroundings |= {"TERM": term, "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen([*FDML, *map(str, words)], stdin=theirs, stdout=theirs, stderr=theirs, env=surroundings)
    os.close(theirs)
    found, deadline = b"", time.monotonic() + 120.0
    try:
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # it has closed its end
                    break
                found += piece
            elif process.poll() is not None:
                break
        return process.wait(30), found.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_run_has_a_live_view_at_a_terminal_that_leaves_no_trace(home):
    code, text = at_a_terminal("simulate", home / "run.toml")
    assert code == 0, text
    plain = ESCAPES.sub("", text)
    assert re.search(r"ann +[━╸╺ ]+ +epoch \d+/40  (training|waiting|finished)", plain), plain
    assert re.search(r"epoch \d+: test loss 0\.\d{4}, test AUC 0\.\d{4}", plain)
    assert "[ann] joined" in plain, "the lines of before are above it"
    assert text.count(HIDE) == text.count(BRING_BACK) > 0
    assert "epoch  seconds  train loss" in plain.rpartition("finished")[2], "the figures are below it"


def test_a_dumb_terminal_has_plain_lines(home):
    code, text = at_a_terminal("join", home / "ann" / "party.toml", "--server", "127.0.0.1:1", term="dumb")
    assert code == 0, text
    assert "had finished before" in text
    assert set(ESCAPES.findall(text)) <= {"\x1b[0m"}, "a reset of colours as the process ends, and nothing else"


def test_quiet_leaves_the_figures_alone(home):
    code, text = at_a_terminal("join", home / "ann" / "party.toml", "--quiet", "--server", "127.0.0.1:1")
    assert code == 0, text
    assert "had finished before" not in text
    assert "held-out rows, model of epoch" in text
    assert "\x1b[2K" not in text
