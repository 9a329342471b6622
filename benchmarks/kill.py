"""Does a run survive `kill -9`? Any process, any moment; the end must be the same to the bit.

Each is a run of a server and parties as processes over mutual TLS. At a
random moment one of them is killed and started again. Models and prediction
matrix are compared with those of a run that was left alone.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.cluster import finished_state, history_of, run_folder, running, server_state, write_run
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report
from fdml.events import Evaluated
from fdml.federation.run_folder import MODEL
from fdml.models.bundle import Bundle
from fdml.protocol.messages import Push, Total
from fdml.protocol.wire import decode_from_party
from fdml.protocol.wire_pb2 import Record
from fdml.server.run_state import RunDefinition, RunState
from fdml.settings import run_hash
from fdml.settings.federation import read_run
from fdml.storage.disk import FolderDisk
from fdml.storage.journal import Journal

PARTIES = ("p0", "p1")


@dataclass(frozen=True)
class KillRun:
    """One run with one kill."""

    killed: str
    after: float
    """Seconds from the first pushes to the kill."""
    met: bool
    """Whether the process still ran when it was killed."""
    identical: bool
    metric: float
    gate_kept: bool
    """Whether no total was ever served too far ahead."""


def run(progress: Progress, seeds: int = 200, first: int = 0) -> Report:
    """Kill a random process in each of `seeds` synchronous runs, and in a quarter as many asynchronous ones."""
    with tempfile.TemporaryDirectory(prefix="fdml-kill-") as folder:
        runs, span, _ = kill_runs(Path(folder) / "sync", range(first, first + seeds), 0, progress)
        loose, _, calm = kill_runs(Path(folder) / "async", range(first, first + max(1, seeds // 4)), 4, progress)
    worst = max(abs(each.metric - calm) for each in loose)
    rows = [
        _count(f"synchronous, {who} killed: bit-identical", [t.identical for t in runs if t.killed == who])
        for who in ("server", *PARTIES)
    ]
    rows += [
        _count("synchronous, all: bit-identical", [t.identical for t in runs]),
        _count("synchronous, all: the process still ran when it was killed", [t.met for t in runs]),
        _count("asynchronous, all: finished, metric within .005", [abs(t.metric - calm) <= 0.005 for t in loose]),
        _count("asynchronous, all: gate kept", [t.gate_kept for t in loose]),
        {
            "contender": "asynchronous: metric moved by",
            "median": worst,
            "min": 0.0,
            "max": worst,
            "unit": "AUC at most",
        },
    ]
    question = (
        f"How do runs that train for {span:.1f} s end when one process is killed with kill -9 at a random moment?"
    )
    return Report("kill", question, rows, {}, machine(), commit())


def _count(what: str, outcomes: list[bool]) -> dict[str, object]:
    good = sum(outcomes)
    return {"contender": what, "median": good, "min": good, "max": len(outcomes), "unit": "runs, of max"}


def kill_runs(folder: Path, seeds: range, staleness: int, progress: Progress) -> tuple[list[KillRun], float, float]:
    """An undisturbed run, then one with a kill for every seed; returns these, and the first's seconds and metric."""
    calm = folder / "calm"
    _write(calm, staleness)
    with running(calm, PARTIES) as cluster:
        cluster.finish()
    wanted, span = outcome_hash(calm), _last_epoch(calm).seconds or 0.0
    runs = []
    for seed in seeds:
        home = folder / f"seed-{seed}"
        _write(home, staleness)
        runs.append(_one(home, seed, span, wanted))
        shutil.rmtree(home)
        same = "bit-identical" if runs[-1].identical else "not bit-identical" + " (asynchronous)" * (staleness > 0)
        progress(f"seed {seed}: {runs[-1].killed} killed after {runs[-1].after:.2f} s; ended {same}")
    return runs, span, final_metric(calm)


def _one(home: Path, seed: int, span: float, wanted: bytes) -> KillRun:
    chance = random.Random(seed)
    with running(home, PARTIES) as cluster:
        cluster.await_training()
        victim = chance.choice(("server", *PARTIES))
        after = chance.uniform(0.0, span)
        time.sleep(after)
        met = cluster.kill(victim)
        time.sleep(chance.uniform(0.0, 0.3))
        cluster.start(victim)
        cluster.finish()
    return KillRun(victim, after, met, outcome_hash(home) == wanted, final_metric(home), gate_kept(home))


def _write(home: Path, staleness: int) -> None:
    """A run small enough to be done in seconds, with all kinds of state: momentum, Adam, hidden units."""
    chance = np.random.default_rng(0)
    X = chance.normal(size=(5000, 12)).astype(np.float32)
    labels = (X @ chance.normal(size=12) + X[:, 0] * X[:, 1] > 0).astype(np.int64)
    settings = (
        f'[training]\nepochs = 30\nbatch_size = 100\nbatches_per_block = 4\nlearning_rate = "auto"\n'
        f"staleness = {staleness}\n"
        f"checkpoint_seconds = 0.1"
    )
    models = ('kind = "mlp"\noptimizer = "momentum"', 'kind = "linear"\noptimizer = "adam"')
    write_run(home, settings, (X[:, :6], X[:, 6:]), labels, models)


def outcome_hash(home: Path) -> bytes:
    """A hash over the models of all parties and the server's prediction matrix, without the run's own address."""
    digest = hashlib.blake2b(digest_size=32)
    for party in PARTIES:
        parameters = Bundle.load(run_folder(home, party) / MODEL).parameters
        for name in sorted(parameters):
            digest.update(name.encode() + parameters[name].tobytes())
    coordinator = finished_state(home).coordinator
    if coordinator is not None:
        for column in range(len(PARTIES)):
            digest.update(coordinator.matrix.column(column).tobytes())
    return digest.digest()


def final_metric(home: Path) -> float:
    """The last epoch's test metric, as the label party reported it."""
    found = _last_epoch(home).test_metric
    if found is None:
        raise AssertionError("the label party has evaluated without a metric")
    return found


def _last_epoch(home: Path) -> Evaluated:
    history = history_of(home)
    return history[max(history)]


def gate_kept(home: Path) -> bool:
    """Go through the server's log once more and see that no total was served more than the staleness ahead."""
    settings = read_run(home / "run.toml")
    disk = FolderDisk(server_state(home))
    state = RunState(RunDefinition(settings, run_hash(settings)), FolderDisk(home / "replayed"))
    pushed = dict.fromkeys(settings.parties, -1)
    for raw in Journal(disk, "journal").replay():
        record = Record.FromString(raw)
        if not record.message:
            raise ValueError("the log was begun anew on the way; use runs small enough for one log")
        message = decode_from_party(record.message)
        if isinstance(message, Push):
            pushed[record.sender] = max(pushed[record.sender], message.step)
        for reply in state.take(record.sender, message):
            if isinstance(message, Push) and isinstance(reply.message, Total):
                ahead = reply.message.step - min(pushed.values())
                if ahead > settings.training.staleness:
                    return False
    return True
