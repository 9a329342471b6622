"""A whole run on this machine: the server and every party as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fdml.errors import PartyFailed, PeerTimeout
from fdml.events import Listener, Remark
from fdml.federation.addresses import takes_any_port, with_port
from fdml.federation.party_folder import HISTORY
from fdml.federation.run_folder import RunFolder
from fdml.federation.server_sessions import ServerRuns, alignment_figures
from fdml.monitor.convergence import convergence_of
from fdml.monitor.event_lines import EventLines
from fdml.monitor.history import read_history
from fdml.protocol.certificates import SERVER
from fdml.settings import RunSettings
from fdml.settings.federation import federation_of, read_run

_POLL_SECONDS = 0.05
_STOP_SECONDS = 5.0
"""Time that processes get to end by themselves once they are asked to."""
_LISTEN_SECONDS = 120.0
"""Time that the server gets until it listens."""


def run_processes(
    path: Path,
    *,
    federation: Path | None = None,
    plain: bool = False,
    on_event: Listener = lambda _: None,
    tells: bool = False,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Run server and parties to their end; returns the alignment and, from the label party's file, the history and
    whether training has converged.

    `path` is a run.toml. Beside `federation`, the federation.toml, are the folders of the server and all parties; None
    takes the one beside the run.toml.
    All parties are in one hand here, so they consent to each other's rows (`--yes`).
    What a process prints becomes remarks of its side; with `tells` its progress and figures become events, too.
    `options` are further ones of every process. Where federation.toml leaves the port open (port 0), the server
    takes a free one and the parties are started once it is known. Where a party is the host, or there is no server,
    there is no process but those of the parties.
    """
    who = federation or federation_of(path)
    settings, home = read_run(path, who), who.parent
    options = ["--run", str(path), *(["--plain"] if plain else []), *options]
    with tempfile.TemporaryDirectory(prefix="fdml-") as name, Children(Path(name), on_event, tells=tells) as children:
        port_file = Path(name) / "port"

        def join(party: str, *words: str) -> None:
            children.start(party, "join", str(home / party / "party.toml"), "--yes", *words, *options)

        first = ["--port-file", str(port_file)]
        if settings.host is not None:
            join(settings.host, *first)
        elif not settings.is_mesh:
            children.start(SERVER, "serve", str(who), *first, *options)
        found = [] if not takes_any_port(settings.server) else _await_port(children, settings, port_file)
        if found is not None:
            for party in settings.parties:
                if party != settings.host:
                    join(party, *found)
        while children.are_running():
            time.sleep(_POLL_SECONDS)
    history = read_history(RunFolder(home / settings.label_party, settings).path / HISTORY)
    rows = [history[epoch] for epoch in sorted(history)]
    trained = convergence_of([row.train_loss for row in rows])
    return {
        "alignment": _alignment((home / settings.comparer if settings.is_mesh else home) / SERVER, settings),
        "history": [asdict(row) for row in rows],
        "convergence": None if trained is None else trained.trend,
    }


def _alignment(home: Path, settings: RunSettings) -> dict[str, Any]:
    """What the server of a finished run has stored of its alignment."""
    with ServerRuns(home, lambda _: None) as runs:
        opened = runs.open(settings)
        opened.close()
    return alignment_figures(opened.state, opened.rows)


def _await_port(children: Children, settings: RunSettings, port_file: Path) -> list[str] | None:
    """The parties' option for the server's address; None if the run was finished before, so that nobody listens."""
    deadline = time.monotonic() + _LISTEN_SECONDS
    while not port_file.exists():
        if not children.are_running():
            return None
        if time.monotonic() > deadline:
            raise PeerTimeout(f"the server did not listen within {_LISTEN_SECONDS:g} s; run the same command again")
        time.sleep(_POLL_SECONDS)
    return ["--server", with_port(settings.server, int(port_file.read_text(encoding="utf-8")))]


@dataclass
class ChildProcess:
    """One process of a run; its output goes to a file."""

    name: str
    process: subprocess.Popen[str]
    log: Path
    events: EventLines | None = None
    """What it tells of how far it is; None where it was not asked to."""
    forwarded: int = 0
    """Characters of the log that were forwarded."""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def new_lines(self) -> list[str]:
        """The complete lines since the last call."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        begin, self.forwarded = self.forwarded, text.rfind("\n") + 1
        return text[begin : self.forwarded].splitlines()

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.is_running:
            self.process.send_signal(number)

    def failure(self) -> str:
        """Why it failed, in its own words."""
        code = self.process.returncode
        if code < 0:
            return f"killed by {signal.Signals(-code).name}; run the same command again, it goes on where it stopped"
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        errors = [line for line in lines if line.startswith("fdml: ")] or lines[-1:]
        return errors[-1].removeprefix("fdml: ") if errors else f"exit code {code}, no message"


class Children:
    """The processes of a run; leaving the block ends those that still run."""

    def __init__(self, folder: Path, on_event: Listener, *, tells: bool = False) -> None:
        """With `tells` the processes also tell how far they are: only `fdml serve` and `fdml join` do."""
        self._folder = folder
        self._on_event = on_event
        self._tells = tells
        self._children: list[ChildProcess] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        """Interrupt what still runs, then kill what is left, whatever happens meanwhile."""
        try:
            for child in self._children:
                if child.is_running:
                    child.process.send_signal(signal.SIGINT)
            deadline = time.monotonic() + _STOP_SECONDS
            while any(child.is_running for child in self._children) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        finally:
            for child in self._children:
                if child.is_running:
                    child.process.kill()
                child.process.wait()

    def start(self, name: str, *words: str) -> ChildProcess:
        """Start `fdml` with these words, in a process group of its own: Ctrl-C reaches it once, through us."""
        log, told = self._folder / f"{name}.log", self._folder / f"{name}.events"
        with log.open("w", encoding="utf-8") as output:
            command = [sys.executable, "-m", "fdml", *words, *(["--report-to", str(told)] if self._tells else [])]
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, process_group=0)
        child = ChildProcess(name, process, log, EventLines(told) if self._tells else None)
        self._children.append(child)
        return child

    def are_running(self) -> bool:
        """Whether any process has not ended. Forwards their lines; raises if one has failed."""
        running = any(child.is_running for child in self._children)
        for child in self._children:
            for line in child.new_lines():
                if "figures written to" not in line:  # a temporary file
                    self._on_event(Remark(child.name, line.removeprefix(f"{child.name}: ")))
            for event in () if child.events is None else child.events.new():
                self._on_event(event)
        for child in self._children:
            if child.process.poll() not in (None, 0):
                raise PartyFailed(f"{child.name} stopped: {child.failure()}")
        return running
