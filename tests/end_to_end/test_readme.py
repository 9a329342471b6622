"""The commands of the README do what it shows: train, predict, ask over HTTP."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from benchmarks.ports import reserved_port
from tests.end_to_end.cluster import Terminal, until

pytestmark = pytest.mark.slow
README = Path(__file__).parents[2] / "README.md"
SECONDS = 300.0


def typed():
    """The commands of the README in their order, each with the lines that it shows."""
    found = []
    for block in re.findall(r"```text\n(.+?)```", README.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:].partition("  #")[0].strip(), []))
            elif found:
                found[-1][1].append(line)
    return found


def plain(line):
    """A line without what differs from run to run: figures and versions, and whether a gain is certain."""
    line = line.replace("joint brings no certain gain: ", "joint brings ")
    return re.sub(r"\b[0-9a-f]{12,}\b|-?\d+(?:[.,]\d+)*(?:e-?\d+)?", "#", line).strip()


def check(shown, said):
    """Lines that are shown in full are lines that were said."""
    lines = {plain(line) for line in said.splitlines()}
    for line in shown:
        assert plain(line) in lines, f"{line!r} is not in {said!r}"


class Terminals:
    """One for each command, all in one folder; what listens does so at ports that are free."""

    def __init__(self, folder, server, http):
        self._more = {"new": ("--server", f"127.0.0.1:{server}"), "endpoint": ("--port", http)}
        self._folder = folder
        self.all = []

    def type(self, command):
        _, name, *words = shlex.split(command)
        self.all.append(Terminal(self._folder / f"{len(self.all)}.log", name, *words, *self._more.get(name, ())))
        return self.all[-1]

    def ended(self, command):
        """What a command says that ends well."""
        terminal = self.type(command)
        terminal.expect(0, seconds=SECONDS)
        return terminal.text


def test_the_readme_trains_predicts_and_asks_over_http(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = typed()
    words = [" ".join(command.split()[:2]) for command, _ in commands]
    assert words == [
        *("fdml new", "fdml serve", "fdml join"),
        *("fdml serve", "fdml up", "head -4", "fdml predict", "fdml endpoint", "curl -s"),
    ]
    with reserved_port() as server, reserved_port() as http:
        terminals = Terminals(tmp_path, server, http)
        try:
            train(terminals, *commands[:3])
            ask(terminals, *commands[3:], http)
        finally:
            for terminal in terminals.all:
                terminal.kill()


def train(terminals, new, serve, join):
    terminals.ended(new[0])
    server, other = terminals.type(serve[0]), terminals.type(join[0].replace("store", "browser"))
    check(join[1], terminals.ended(join[0]))
    other.expect(0, seconds=SECONDS)
    server.expect(0, seconds=SECONDS)
    check(serve[1], server.text)


def ask(terminals, serve, up, head, predict, endpoint, curl, http):
    terminals.type(serve[0])
    terminals.type(up[0])
    subprocess.run(head[0], shell=True, check=True)
    until(lambda: "3 of 3 rows" in said(terminals, predict[0]), "scores of all rows", SECONDS)
    check(predict[1], terminals.all[-1].text)
    assert len(Path("scores.csv").read_text().splitlines()) == 4
    terminals.type(endpoint[0])
    command = curl[0].replace(":8080", f":{http}")
    until(lambda: "score" in answer(command), "an answer over HTTP", SECONDS)
    found = answer(command)
    assert plain(found).startswith(plain(curl[1][0]).removesuffix(", ...")), found
    outputs = {each["name"]: each["data"] for each in json.loads(found)["outputs"]}
    assert outputs["answered"] == ["store,browser"]
    assert outputs["score"][0] is not None


def said(terminals, command):
    terminal = terminals.type(command)
    until(lambda: terminal.code is not None, "its end", SECONDS)
    return terminal.text


def answer(curl):
    return subprocess.run(curl, shell=True, capture_output=True, text=True, check=False, timeout=60).stdout
