"""Does a run survive `kill -9`? Any process, any moment; the end must be the same to the bit.

Every trial is a run of a server and parties as processes over mutual TLS. At a
random moment one of them is killed and started again. Models and prediction
matrix are compared with those of a run that was left alone.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import numpy as np

from fdml.bench.machine import commit, machine
from fdml.bench.measure import Progress, Report
from fdml.data.disk import FolderDisk
from fdml.errors import FdmlError, WaitedTooLong
from fdml.run.join import join
from fdml.run.scaffold import write_keys
from fdml.run.serve import serve
from fdml.server.host import Charter, Host
from fdml.settings import read_run, run_hash
from fdml.watch.events import Event

PARTIES = ("store", "browser")
_DEADLINE = 120.0
"""Seconds a whole trial may take."""


@dataclass(frozen=True)
class Trial:
    """One run with one kill."""

    killed: str
    after: float
    """Seconds from the first party's first word to the kill."""
    identical: bool
    metric: float


def run(progress: Progress, seeds: int = 200, first: int = 0, staleness: int = 0) -> Report:
    """Kill a random process in each of `seeds` runs."""
    with tempfile.TemporaryDirectory(prefix="fdml-kill-") as folder:
        trials, span = kill_trials(Path(folder), range(first, first + seeds), staleness, progress)
    survived = [trial for trial in trials if trial.identical]
    question = f"Of {seeds} runs with one kill -9 each, how many end bit-identical to an undisturbed run?"
    rows = [
        {
            "contender": who,
            "median": sum(t.killed == who for t in survived),
            "min": 0,
            "max": sum(t.killed == who for t in trials),
            "unit": "runs bit-identical, of max",
        }
        for who in ("server", *PARTIES)
    ]
    rows.append(
        {
            "contender": "all",
            "median": len(survived),
            "min": 0,
            "max": len(trials),
            "unit": f"runs bit-identical, of max; kills 0 to {span:.1f} s into a run",
        }
    )
    return Report("kill", question, rows, {}, machine(), commit())


def kill_trials(folder: Path, seeds: range, staleness: int, progress: Progress) -> tuple[list[Trial], float]:
    """Run an undisturbed run, then one with a kill for every seed; returns them and the undisturbed seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fdml.bench.kill"])
    began = time.monotonic()
    calm = folder / "calm"
    write_run(calm, staleness)
    with _cluster(context, calm) as cluster:
        cluster.finish()
    span = time.monotonic() - began
    wanted = outcome_hash(calm)
    trials = []
    for seed in seeds:
        home = folder / f"trial-{seed}"
        write_run(home, staleness)
        trials.append(_one(context, home, seed, wanted))
        shutil.rmtree(home)
        progress(
            f"seed {seed}: {trials[-1].killed} killed after {trials[-1].after:.2f} s, "
            + ("identical" if trials[-1].identical else "DIFFERENT")
        )
    return trials, span


def _one(context: ForkServerContext, home: Path, seed: int, wanted: bytes) -> Trial:
    chance = random.Random(seed)
    with _cluster(context, home) as cluster:
        cluster.await_training()
        victim = chance.choice(("server", *PARTIES))
        after = chance.uniform(0.0, 1.5)
        time.sleep(after)
        cluster.kill(victim)
        time.sleep(chance.uniform(0.0, 0.3))
        cluster.start(victim)
        cluster.finish()
    return Trial(victim, after, outcome_hash(home) == wanted, final_metric(home))


class Cluster:
    """Server and parties of one run, each a process forked from one that has everything imported."""

    def __init__(self, context: ForkServerContext, home: Path) -> None:
        self._context = context
        self._home = home
        self._deadline = time.monotonic() + _DEADLINE
        self._members: dict[str, ForkServerProcess] = {}

    def start(self, name: str) -> None:
        """Start a process, for the first time or again."""
        process = self._context.Process(target=_live, args=(self._home, name), daemon=True)
        process.start()
        self._members[name] = process

    def kill(self, name: str) -> None:
        """End a process as a power cut would."""
        process = self._members[name]
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join(self._left())

    def await_training(self) -> None:
        """Wait until pushes reach the server's log."""
        log = self._home / "server" / "state" / "journal"
        while not (log.exists() and log.stat().st_size > 2**17):
            self._left()
            time.sleep(0.005)

    def finish(self) -> None:
        """Wait for the end of all; a process that failed is an error."""
        for name, process in self._members.items():
            process.join(self._left())
            if process.exitcode != 0:
                raise FdmlError(f"{name} in {self._home} ended with exit code {process.exitcode}")

    def stop(self) -> None:
        """End whatever still runs."""
        for process in self._members.values():
            process.kill()
            process.join()

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            waiting = [name for name, process in self._members.items() if process.is_alive()]
            raise WaitedTooLong(f"the run in {self._home} did not end within {_DEADLINE:g} s; {waiting} still run")
        return left


@contextmanager
def _cluster(context: ForkServerContext, home: Path) -> Iterator[Cluster]:
    cluster = Cluster(context, home)
    try:
        for name in ("server", *PARTIES):
            cluster.start(name)
        yield cluster
    finally:
        cluster.stop()


def _live(home: Path, name: str) -> None:
    if name == "server":
        serve(home / "run.toml", say=_nothing)
    else:
        join(home / name / "party.toml", listener=_ignore, say=_nothing)


def _nothing(_: str) -> None:
    """Nobody listens."""


def _ignore(_: Event) -> None:
    """Nobody listens."""


def write_run(home: Path, staleness: int) -> None:
    """A run small enough to be done in seconds, with all kinds of state: momentum, Adam, hidden units."""
    home.mkdir()
    listed = ", ".join(f'"{party}"' for party in PARTIES)
    (home / "run.toml").write_text(
        f'name = "kill"\nserver = "127.0.0.1:{_free_port()}"\nparties = [{listed}]\nlabel_party = "{PARTIES[0]}"\n'
        f'[training]\nepochs = 60\nbatches_per_block = 4\nlearning_rate = "auto"\nstaleness = {staleness}\n'
        f"checkpoint_seconds = 0.1\n"
    )
    write_keys(home, "kill", PARTIES)
    chance = np.random.default_rng(0)
    X = chance.normal(size=(5000, 12)).astype(np.float32)
    y = (X @ chance.normal(size=12) + X[:, 0] * X[:, 1] > 0).astype(np.int64)
    np.savez(home / PARTIES[0] / "data.npz", X=X[:, :6], y=y)
    np.savez(home / PARTIES[1] / "data.npz", X=X[:, 6:])
    for party, model in zip(
        PARTIES, ('kind = "mlp"\nrule = "momentum"', 'kind = "linear"\nrule = "adam"'), strict=True
    ):
        (home / party / "party.toml").write_text(
            f'party = "{party}"\nrun = "../run.toml"\n[data]\npath = "data.npz"\n[model]\n{model}\n'
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _finished_host(home: Path) -> Host:
    settings = read_run(home / "run.toml")
    return Host.open(Charter(settings, run_hash(settings)), FolderDisk(home / "server" / "state"))


def outcome_hash(home: Path) -> bytes:
    """A hash over the models of all parties and the server's prediction matrix, without the run's own address."""
    digest = hashlib.blake2b(digest_size=32)
    for party in PARTIES:
        with np.load(home / party / "model.npz", allow_pickle=False) as archive:
            for name in sorted(archive.files):
                digest.update(name.encode() + archive[name].tobytes())
    coordinator = _finished_host(home).coordinator
    if coordinator is not None:
        for column in range(len(PARTIES)):
            digest.update(coordinator.matrix.column(column).tobytes())
    return digest.digest()


def final_metric(home: Path) -> float:
    """The last epoch's test metric, as the label party reported it."""
    history = _finished_host(home).history
    return history[max(history)].test_metric
