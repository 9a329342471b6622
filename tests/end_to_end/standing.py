"""A federation whose server and parties stand by, as real processes, for tests that start runs and disturb them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fdml.errors import MessageRefused
from fdml.federation.key_files import read_credentials
from fdml.federation.party_home import PartyHome
from fdml.federation.runs import listing
from fdml.monitor.status import RunStatus
from fdml.storage.arrays import unpack_arrays
from fdml.storage.lock import LOCK
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.grpc_status import ask_status
from tests.end_to_end.cluster import Cluster, Started, until

PARTIES = ("ann", "bob", "cid")
POLICY = '[policy]\naccept = "policy"\n'
SECONDS = 600.0
"""Until everything must have ended: machines of tests are slow, and each process imports everything."""


class StandingCluster(Cluster):
    """`fdml serve` and three `fdml up`; runs are started with `fdml run`."""

    def __init__(self, home: Path, rows: int = 150, policies: dict[str, str] | None = None, **training: object) -> None:
        super().__init__(home, PARTIES, rows, **training)
        for party in PARTIES:
            with (home / party / "party.toml").open("a") as file:
                file.write(POLICY if policies is None else policies[party])

    def serve(self, *words: str, kind: type[Started] = Started) -> Started:
        return self._start("server", kind, "serve", self.home / "federation.toml", *words)

    def up(self, party: str, *, kind: type[Started] = Started) -> Started:
        """Let a party stand by."""
        return self._start(party, kind, "up", self.home / party / "party.toml")

    def stand_by(self, *, kind: type[Started] = Started) -> StandingCluster:
        self.serve(kind=kind)
        for party in PARTIES:
            self.up(party, kind=kind)
        until(lambda: self.states() is not None, "the server takes calls")
        return self

    def run(self, name: str, *, party: str = "ann", **settings: object) -> str:
        """Start a run from one party; gives what the command prints."""
        return self.command("run", self.write_run_toml(name, **settings), party=party)

    def write_run_toml(self, name: str, **settings: object) -> Path:
        """The run.toml of the cluster with another name and other settings, as a file."""
        path = self.home / f"{name}.toml"
        path.write_text(self.run_toml(name, **settings))
        return path

    def run_toml(self, name: str, **settings: object) -> str:
        """The run.toml of the cluster with another name and other settings of its training."""
        text = (self.home / "run.toml").read_text().replace('name = "first"', f'name = "{name}"')
        lines = [line for line in text.splitlines() if line.split(" = ")[0] not in settings]
        return "\n".join([*lines, *(f"{key} = {value}" for key, value in settings.items())]) + "\n"

    def command(self, *words: object, party: str = "ann", code: int = 0) -> str:
        """A command of a party's operator."""
        started = self._start(f"{words[0]}", Started, *words, "--party", self.home / party / "party.toml")
        return started.expect(code, seconds=SECONDS)

    def start_command(self, *words: object, kind: type[Started] = Started) -> Started:
        """A command that names its party itself, in a process that may be disturbed."""
        return self._start(f"{words[0]}", kind, *words)

    def budget(self, party: str) -> dict[str, Any]:
        """What a party has spent in all runs."""
        path = self.home / f"{party}-budget.json"
        command = ("budget", "show", self.home / party / "party.toml", "--json", path)
        self._start("budget", Started, *command).expect(0, seconds=SECONDS)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def states(self) -> dict[str, str]:
        """Where every run stands, by the server."""
        home = PartyHome.read(self.home / "ann" / "party.toml")
        return {each.name: each.state for each in listing(home).runs}

    def status_of(self, name: str) -> RunStatus:
        """What the server says of a run."""
        credentials = read_credentials(self.home / "ann" / "keys")
        return ask_status(Endpoint(f"127.0.0.1:{self.port}", "e2e", "ann", credentials, run=name))

    def await_run_step(self, name: str, step: int) -> None:
        """Wait until a run is at a step at every party."""

        def is_there() -> bool:
            with contextlib.suppress(MessageRefused):
                return all(party.served >= step for party in self.status_of(name).parties)
            return False

        until(is_there, f"run {name} at step {step}", SECONDS)

    def await_state(self, name: str, state: str) -> None:
        until(lambda: self.states().get(name) == state, f"run {name} {state}", SECONDS)

    def await_models(self, *names: str) -> None:
        """Wait until every party has the models of these runs, and no process of theirs is left."""
        folders = [self.home / party / "runs" / name for party in PARTIES for name in names]
        until(lambda: all((folder / "model").is_dir() for folder in folders), f"models of {names}", SECONDS)
        until(lambda: not any(map(is_held, folders)), "the end of all processes", SECONDS)

    def model(self, party: str, name: str) -> dict[str, bytes]:
        """Parameters and encoder of a bundle; its card has the time."""
        return _files(self.home / party / "runs" / name / "model")

    def models(self, name: str) -> dict[str, dict[str, bytes]]:
        return {party: self.model(party, name) for party in PARTIES}

    def child(self, party: str, name: str) -> int | None:
        """The process that has a run at a party; None if none has."""
        folder = self.home / party / "runs" / name
        return int((folder / "state" / LOCK).read_text()) if is_held(folder) else None

    def split(self, party: str, name: str) -> tuple[list[str], list[str]]:
        """The ids of a party's training rows and held-out rows in a run's order; its file must be as it was then."""
        rows = (self.home / party / "data.csv").read_text().splitlines()[1:]
        ids = [row.split(",")[0] for row in rows]
        arrays = unpack_arrays((self.home / party / "runs" / name / "state" / "alignment").read_bytes())
        return [ids[row] for row in arrays["train"]], [ids[row] for row in arrays["held_out"]]

    def history(self, name: str) -> list[dict[str, Any]]:
        """The label party's figures of every epoch, without times."""
        rows = json.loads((self.home / "ann" / "runs" / name / "history.json").read_text())
        return [
            {key: row[key] for key in ("epoch", "train_loss", "test_loss", "test_metric", "figures")} for row in rows
        ]

    def tokens(self) -> int:
        """Bytes of all tokens that the server has."""
        found = (self.home / "server" / "alignments").glob("*/*-tokens-*")
        return sum(path.stat().st_size for path in found)

    def add_rows(self, first: int, count: int) -> None:
        """Put rows of new people in front of every party's file, so that all rows have other numbers."""
        chance = np.random.default_rng(first)
        for party in PARTIES:
            path = self.home / party / "data.csv"
            header, *rows = path.read_text().splitlines()
            new = [f"{first + number},{chance.normal()},{chance.normal()}" for number in range(count)]
            if party == "ann":
                new = [f"{row},{'yes' if chance.random() < 0.5 else 'no'}" for row in new]
            path.write_text("\n".join([header, *new, *rows]) + "\n")

    def decisions(self, party: str) -> list[dict[str, str]]:
        path = self.home / party / "decisions" / "log.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def stop(self) -> None:
        """End all, also processes of runs that have lost their parent."""
        for member in self._all:
            if member.code is None:
                member.send(signal.SIGTERM)
        for member in self._all:
            with contextlib.suppress(AssertionError):
                member.wait(30)
        for party in PARTIES:
            for folder in (self.home / party / "runs").glob("*"):
                if is_held(folder) and (number := self.child(party, folder.name)) is not None:
                    os.kill(number, signal.SIGKILL)
        super().stop()


def is_held(folder: Path) -> bool:
    """Whether a process works on the run of this folder."""
    path = folder / "state" / LOCK
    if not path.exists():
        return False
    inode = f":{path.stat().st_ino} "
    return any(inode in line for line in Path("/proc/locks").read_text().splitlines())


@contextlib.contextmanager
def standing(home: Path, **options: object) -> Iterator[StandingCluster]:
    cluster = StandingCluster(home, **options)
    try:
        yield cluster
    finally:
        cluster.stop()


def one_shot_models(home: Path, rows: int, run_toml: str, name: str) -> dict[str, dict[str, bytes]]:
    """The models of a run that nobody disturbs, with a server of its own and parties that end with it."""
    cluster = Cluster(home, PARTIES, rows)
    try:
        (home / "run.toml").write_text(run_toml)
        cluster.start()
        cluster.finish(SECONDS)
    finally:
        cluster.stop()
    return {party: _files(home / party / "runs" / name / "model") for party in PARTIES}


def _files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("parameters.npz", "encoder.json")}
