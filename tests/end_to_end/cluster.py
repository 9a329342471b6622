"""Runs of real processes on real sockets, for tests that disturb them.

Most processes are forked from one that has everything imported, so that they
start in a fraction of a second, and so are those that they start themselves; they
run the `fdml` command as it is. `Terminal` starts the command from nothing, as a
user does.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from benchmarks.ports import reserved_port
from fdml.cli.app import app_for, main
from fdml.errors import ServerUnreachable
from fdml.federation.key_files import read_credentials
from fdml.federation.scaffold import write_keys
from fdml.monitor.status import PartyStatus, RunStatus
from fdml.storage.atomic import write_file
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.grpc_status import ask_status
from tests.end_to_end.warm_starts import serve_forks, warm_popen

app_for([])  # imports all commands, before anything is forked
_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload(["tests.end_to_end.cluster", "benchmarks.preload"])
_KEPT: list[Connection] = []
"""Ends of pipes that break once this process has ended."""
FDML = [sys.executable, "-m", "fdml"]
_DEADLINE = 60.0
RUN = "runs/first"
"""The folder of the run at every side."""


class Started:
    """One `fdml` command in a process of its own; its output goes to a file."""

    def __init__(self, log: Path, *words: object) -> None:
        self._log = log
        args = (str(log), [str(word) for word in words], forks())
        self._process = _FORK.Process(target=_command, args=args, daemon=True)
        self._process.start()

    @property
    def text(self) -> str:
        """Its output so far, of both kinds."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    @property
    def pid(self) -> int:
        """The number of its process."""
        number = self._process.pid
        assert number is not None
        return number

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.join(10)

    def wait(self, seconds: float = _DEADLINE) -> int:
        """Its exit code, once it has ended."""
        self._process.join(seconds)
        assert self._process.exitcode is not None, f"{self._log.name} did not end within {seconds:g} s: {self.text}"
        return self._process.exitcode

    def expect(self, code: int, *words: str, seconds: float = _DEADLINE) -> str:
        """Wait for its end; it must have this exit code, have printed these words, and no traceback."""
        found = self.wait(seconds)
        text = " ".join(self.text.split())
        assert found == code, f"{self._log.name} ended with {found}: {self.text}"
        assert "Traceback" not in text, self.text
        for word in words:
            assert word in text, f"{word!r} is not in what {self._log.name} printed: {self.text}"
        return text


class Terminal(Started):
    """A command started from nothing, as a user does at a terminal: it can be interrupted while it imports."""

    def __init__(self, log: Path, *words: object) -> None:
        self._log = log
        with log.open("w") as output:
            self._popen = subprocess.Popen(
                [*FDML, *map(str, words)], stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def code(self) -> int | None:
        return self._popen.poll()

    def send(self, number: signal.Signals) -> None:
        """To the whole group, as Ctrl-C at a terminal does."""
        os.killpg(self._popen.pid, number)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait(10)

    def wait(self, seconds: float = _DEADLINE) -> int:
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._log.name} did not end within {seconds:g} s: {self.text}") from None

    @property
    def group_is_gone(self) -> bool:
        """Whether no process of its group is left."""
        try:
            os.killpg(self._popen.pid, 0)
        except ProcessLookupError:
            return True
        return False


@functools.cache
def forks() -> str:
    """The address of this process's server of forks, which is started with the first call and ends with the process."""
    address = f"\0fdml-{os.getpid()}-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        alive, ours = _FORK.Pipe(duplex=False)
        with alive:
            _FORK.Process(target=serve_forks, args=(listener, alive), daemon=True).start()
    _KEPT.append(ours)
    return address


def _command(log: str, words: list[str], forks: str) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.argv = ["fdml", *words]
    subprocess.Popen = warm_popen(lambda: forks)  # type: ignore[misc]
    main()


class Cluster:
    """The folder of a run, and the processes started from it."""

    def __init__(
        self, home: Path, parties: Sequence[str] = ("ann", "bob"), rows: int = 400, **training: object
    ) -> None:
        self.home = home
        self.parties = tuple(parties)
        self.members: dict[str, Started] = {}
        self._all: list[Started] = []
        self._held = contextlib.ExitStack()
        self.port = self._held.enter_context(reserved_port())
        self.write(rows, training)

    def write(self, rows: int, training: dict[str, object]) -> None:
        """Write the run's files."""
        write_run(self.home, self.port, self.parties, rows, training)

    def serve(self, *words: str, kind: type[Started] = Started) -> Started:
        """Start the server."""
        return self._start(
            "server", kind, "serve", self.home / "federation.toml", "--run", self.home / "run.toml", *words
        )

    def join(self, party: str, *words: str, kind: type[Started] = Started) -> Started:
        """Start a party."""
        return self._start(party, kind, "join", self.home / party / "party.toml", *words)

    def start(self, *words: str, kind: type[Started] = Started) -> None:
        """Start the server and all parties."""
        self.serve(*words, kind=kind)
        for party in self.parties:
            self.join(party, *words, kind=kind)

    def _start(self, name: str, kind: type[Started], *words: object) -> Started:
        log = self.home / f"{name}-{len(self._all)}.log"
        self.members[name] = kind(log, *words)
        self._all.append(self.members[name])
        return self.members[name]

    def __getitem__(self, name: str) -> Started:
        return self.members[name]

    def finish(self, seconds: float = _DEADLINE) -> None:
        """Wait until the last start of every member has ended well."""
        deadline = time.monotonic() + seconds
        for name in (*self.parties, "server"):
            self.members[name].expect(0, seconds=max(1.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """End whatever still runs."""
        for member in self._all:
            if member.code is None:
                member.kill()
        self._held.close()

    def through(self, party: str, port: int) -> None:
        """Let a party reach the server at another port."""
        path = self.home / party / "party.toml"
        path.write_text(f'server = "127.0.0.1:{port}"\n' + path.read_text())

    def change(self, old: str, new: str, file: str = "run.toml") -> None:
        """Change run.toml, or federation.toml."""
        text = (self.home / file).read_text()
        assert old in text
        (self.home / file).write_text(text.replace(old, new))

    def lose_state(self, side: str) -> None:
        """Remove the state of the run at one side, as after a disk was lost."""
        shutil.rmtree(self.home / side / RUN / "state")

    def status(self) -> RunStatus:
        """What the server says of the run."""
        party = self.parties[0]
        credentials = read_credentials(self.home / party / "keys")
        return ask_status(Endpoint(f"127.0.0.1:{self.port}", "e2e", party, credentials))

    def statuses(self) -> dict[str, PartyStatus]:
        """The status of each party."""
        return {party.name: party for party in self.status().parties}

    def await_step(self, step: int, party: str | None = None, seconds: float = _DEADLINE) -> float:
        """Wait until a party was served a step; returns the seconds it took."""
        name = party or self.parties[0]
        return until(lambda: self.statuses()[name].served >= step, f"{name} at step {step}", seconds)

    def model_hashes(self) -> dict[str, str]:
        """The hash of every party's model, as its last start has printed it."""
        found = {}
        for party in self.parties:
            printed = re.search(r"\(hash ([0-9a-f]{16})\)", " ".join(self.members[party].text.split()))
            assert printed is not None, self.members[party].text
            found[party] = printed[1]
        return found


@contextlib.contextmanager
def running(home: Path, *args: object, **training: object) -> Iterator[Cluster]:
    """A cluster; whatever still runs at the end is killed."""
    cluster = Cluster(home, *args, **training)
    try:
        yield cluster
    finally:
        cluster.stop()


def until(true: Callable[[], bool], what: str, seconds: float = _DEADLINE) -> float:
    """Wait until something is true, also while the server is away; returns the seconds it took."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(ServerUnreachable):
            if true():
                return time.monotonic() - began
        assert time.monotonic() - began < seconds, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def write_federation(home: Path, port: int, parties: Sequence[str]) -> None:
    """Who works together, without keys."""
    (home / "federation.toml").write_text(f'name = "e2e"\nserver = "127.0.0.1:{port}"\nparties = {list(parties)!r}\n')


def write_run(home: Path, port: int, parties: Sequence[str], rows: int, training: dict[str, object]) -> None:
    """A run whose parties hold two columns each of the same rows, every one in an order of its own.

    They have a key file, so that two runs put the rows in the same order and end with the same models.
    """
    home.mkdir(parents=True)
    chosen = {
        "epochs": 3,
        "batch_size": 20,
        "batches_per_block": 1,
        "value_bits": 64,
        "checkpoint_seconds": 0.2,
        "peer_timeout_seconds": 30.0,
    }
    lines = [f"{key} = {value}" for key, value in (chosen | training).items()]
    write_federation(home, port, parties)
    (home / "run.toml").write_text(
        f'name = "first"\nlabel_party = "{parties[0]}"\n[training]\n' + "\n".join(lines) + "\n"
    )
    write_keys(home, "e2e", parties)
    chance = np.random.default_rng(3)
    X = chance.normal(size=(rows, 2 * len(parties)))
    labels = np.where(X.sum(axis=1) + chance.normal(size=rows) > 0, "yes", "no")
    for number, party in enumerate(parties):
        label = "label" if number == 0 else None
        columns = {"id": np.arange(rows), "x": X[:, 2 * number], "y": X[:, 2 * number + 1]}
        if label is not None:
            columns[label] = labels
        write_csv(home / party / "data.csv", columns, chance.permutation(rows))
        write_file(home / party / "group.key", b"5a" * 32)
        (home / party / "party.toml").write_text(
            f'party = "{party}"\nfederation = "../federation.toml"\ngroup_key = "group.key"\n[align]\nmax_rows = 100000\n[data]\npath = "data.csv"\nid = "id"\n'
            + ('label = "label"\n' if label else "")
        )


def write_csv(path: Path, columns: dict[str, np.ndarray], order: np.ndarray) -> None:
    """A CSV file with its rows in this order."""
    lines = [",".join(str(column[row]) for column in columns.values()) for row in order]
    path.write_text("\n".join([",".join(columns), *lines]) + "\n")
