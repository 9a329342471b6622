"""A whole run on this machine: the server and every party as a process of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fdml.errors import PartyFailed
from fdml.settings import RunSettings, read_run

_POLL_SECONDS = 0.05
_STOP_SECONDS = 5.0


@dataclass(frozen=True)
class ChildProcess:
    """One process of a run."""

    name: str
    process: subprocess.Popen[str]
    log: Path


def run_processes(path: Path, *, fresh: bool, plain: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Start server and parties, wait for their end, and return the history the server wrote."""
    settings = read_run(path)
    with (
        tempfile.TemporaryDirectory(prefix="fdml-") as folder,
        _started(path, settings, Path(folder), fresh, plain) as all_,
    ):
        told: dict[str, int] = {}
        running = True
        while running:
            running = any(member.process.poll() is None for member in all_)
            _forward(all_, told, say)
            for member in all_:
                if member.process.poll() not in (None, 0):
                    raise PartyFailed(f"{member.name} stopped: {_reason(member)}")
            time.sleep(_POLL_SECONDS)
        found: dict[str, Any] = json.loads((Path(folder) / "history.json").read_text(encoding="utf-8"))
    return found


@contextlib.contextmanager
def _started(path: Path, settings: RunSettings, folder: Path, fresh: bool, plain: bool) -> Iterator[list[ChildProcess]]:
    words = [*(["--fresh"] if fresh else []), *(["--plain"] if plain else [])]
    members: list[ChildProcess] = []
    try:
        members.append(_start("server", folder, "serve", str(path), "--json", str(folder / "history.json"), *words))
        for party in settings.parties:
            members.append(_start(party, folder, "join", str(path.parent / party / "party.toml"), *words))
        yield members
    finally:
        _stop(members)


def _start(name: str, folder: Path, *words: str) -> ChildProcess:
    """Start one process, in a group of its own: Ctrl-C reaches it through us, once."""
    log = folder / f"{name}.log"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "fdml", *words], stdout=output, stderr=subprocess.STDOUT, text=True, process_group=0
        )
    return ChildProcess(name, process, log)


def _stop(members: list[ChildProcess]) -> None:
    """End what still runs: with a word first, and whatever happens meanwhile, with force in the end."""
    try:
        for member in members:
            if member.process.poll() is None:
                member.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _STOP_SECONDS
        while any(member.process.poll() is None for member in members) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    finally:
        for member in members:
            if member.process.poll() is None:
                member.process.kill()
            member.process.wait()


def _forward(members: list[ChildProcess], told: dict[str, int], say: Callable[[str], None]) -> None:
    for member in members:
        text = member.log.read_text(encoding="utf-8", errors="replace")
        complete = text.rfind("\n") + 1
        for line in text[told.get(member.name, 0) : complete].splitlines():
            if "figures written to" in line:
                continue  # a file of ours, gone in a moment
            say(f"[{member.name}] {line.removeprefix(f'{member.name}: ')}")
        told[member.name] = complete


def _reason(member: ChildProcess) -> str:
    """What a process that failed has said of it."""
    code = member.process.returncode
    if code < 0:
        return f"killed by {signal.Signals(-code).name}; run the same command again, it goes on where it stopped"
    lines = member.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    said = [line for line in lines if line.startswith("fdml: ")] or lines[-1:]
    return said[-1].removeprefix("fdml: ") if said else f"exit code {code}, no message"
