"""Does a run without a server survive `kill -9`? Any party, any moment; the end must be the same to the bit.

Every process is a party: one of them hosts the server, or each sums for itself. At a random moment one is killed and
started again. All models are compared with those of a run over a server that was left alone, and without a server
the prediction matrices of all parties with each other.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster import history_of, run_folder
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report
from benchmarks.topologies import Kind, state_at, topology
from fdml.federation.run_folder import MODEL
from fdml.models.bundle import Bundle
from fdml.server.run_state import RunDefinition, RunState
from fdml.settings import run_hash
from fdml.settings.federation import read_run
from fdml.storage.disk import FolderDisk

PARTIES = ("p0", "p1", "p2")
_EPOCHS = 30


@dataclass(frozen=True)
class KilledParty:
    """One run with one kill."""

    kind: Kind
    killed: str
    after: float
    """Seconds from the first pushes to the kill."""
    met: bool
    """Whether the process still ran when it was killed."""
    identical: bool


def run(progress: Progress, seeds: int = 50, first: int = 0) -> Report:
    """Kill a random party in each of `seeds` runs without a server, and in as many at a host."""
    with tempfile.TemporaryDirectory(prefix="fdml-kill-mesh-") as folder:
        runs, span = kill_runs(Path(folder), ("mesh", "host"), range(first, first + seeds), progress)
    rows = [
        _count(f"{kind}, {who} killed: bit-identical", [t.identical for t in runs if (t.kind, t.killed) == (kind, who)])
        for kind in ("mesh", "host")
        for who in PARTIES
    ]
    for kind in ("mesh", "host"):
        rows.append(_count(f"{kind}, all: bit-identical", [t.identical for t in runs if t.kind == kind]))
    rows.append(_count("all: the process still ran when it was killed", [t.met for t in runs]))
    question = f"How do runs of {span:.1f} s without a server's process end when a party is killed at a random moment?"
    return Report("kill-mesh", question, rows, {}, machine(), commit())


def kill_runs(
    folder: Path, kinds: tuple[Kind, ...], seeds: range, progress: Progress
) -> tuple[list[KilledParty], float]:
    """An undisturbed run over a server, then of each kind one with a kill for every seed; and the first's seconds."""
    with _started(folder / "calm", "server") as cluster:
        cluster.finish()
    wanted = models_hash(folder / "calm")
    history = history_of(folder / "calm")
    span = history[max(history)].seconds or 0.0
    runs = []
    for seed in seeds:
        for kind in kinds:
            runs.append(_one(folder / f"{kind}-{seed}", kind, seed, span, wanted))
            same = "bit-identical" if runs[-1].identical else "NOT bit-identical"
            progress(f"seed {seed}, {kind}: {runs[-1].killed} killed after {runs[-1].after:.2f} s; ended {same}")
    return runs, span


def _one(home: Path, kind: Kind, seed: int, span: float, wanted: bytes) -> KilledParty:
    chance = random.Random(seed)
    with _started(home, kind) as cluster:
        _await_training(state_at(home, kind, PARTIES[0]))
        victim, after = chance.choice(PARTIES), chance.uniform(0.0, span)
        time.sleep(after)
        met = cluster.kill(victim)
        time.sleep(chance.uniform(0.0, 0.3))
        cluster.start(victim)
        cluster.finish()
    identical = models_hash(home) == wanted and (kind != "mesh" or len(_matrices(home)) == 1)
    shutil.rmtree(home)
    return KilledParty(kind, victim, after, met, identical)


def _started(home: Path, kind: Kind) -> Any:
    chance = np.random.default_rng(0)
    X = chance.normal(size=(3000, 12)).astype(np.float32)
    labels = (X @ chance.normal(size=12) + X[:, 0] * X[:, 1] > 0).astype(np.int64)
    settings = (
        f'[training]\nepochs = {_EPOCHS}\nbatch_size = 100\nbatches_per_block = 4\nlearning_rate = "auto"\n'
        f"value_bits = 64\ncheckpoint_seconds = 0.1"
    )
    models = ('kind = "mlp"\noptimizer = "momentum"', 'kind = "linear"\noptimizer = "adam"', 'kind = "linear"')
    return topology(home, kind, settings, (X[:, :4], X[:, 4:8], X[:, 8:]), labels, models)


def _await_training(state: Path, seconds: float = 120.0) -> None:
    """Wait until pushes reach a session's log."""
    log, deadline = state / "journal", time.monotonic() + seconds
    while not (log.exists() and log.stat().st_size > 2**16) and time.monotonic() < deadline:
        time.sleep(0.005)


def models_hash(home: Path) -> bytes:
    """A hash over the models of all parties."""
    digest = hashlib.blake2b(digest_size=32)
    for party in PARTIES:
        parameters = Bundle.load(run_folder(home, party) / MODEL).parameters
        for name in sorted(parameters):
            digest.update(name.encode() + parameters[name].tobytes())
    return digest.digest()


def _matrices(home: Path) -> set[bytes]:
    """The different prediction matrices of all parties' sessions."""
    settings, found = read_run(home / "run.toml"), set()
    for party in PARTIES:
        disk = FolderDisk(state_at(home, "mesh", party))
        coordinator = RunState.open(RunDefinition(settings, run_hash(settings)), disk).coordinator
        if coordinator is not None:
            found.add(b"".join(coordinator.matrix.column(at).tobytes() for at in range(len(PARTIES))))
    return found


def _count(what: str, outcomes: list[bool]) -> dict[str, object]:
    good = sum(outcomes)
    return {"contender": what, "median": good, "min": good, "max": len(outcomes), "unit": "runs, of max"}
