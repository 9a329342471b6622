"""Does a batch of predictions survive `kill -9`? Any process, in the middle; the output must be the same file.

A server, three parties and the batch are processes over mutual TLS. At a random moment one of them is killed and
started again. The output is compared with that of a batch that was left alone.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cluster import Cluster
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report
from benchmarks.ports import reserved_port
from benchmarks.serving_parties import PARTIES, add_rows, id_of, live, stand_by, until, write_federation
from fdml.errors import FdmlError
from fdml.federation.asked_files import asked_file
from fdml.federation.predicting import asking
from fdml.party.settings import read_party
from fdml.serving.batch import Retry, predict_batch

BATCH = "batch"
VICTIMS = (BATCH, "server", *PARTIES)
_DEADLINE = 7200.0
_TRAINED = 2000
_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 600.0


@dataclass(frozen=True)
class KilledBatch:
    """One batch with one kill."""

    killed: str
    blocks: int
    """How many had been written by then."""
    met: bool
    """Whether the batch still ran."""
    identical: bool
    """Whether every id has its score, and the file is that of an undisturbed batch to the bit."""


def run(progress: Progress, rows: int = 1_000_000, seeds: int = 5, first: int = 0) -> Report:
    """Kill one process in each of `seeds` batches of so many ids, every process in its turn."""
    with tempfile.TemporaryDirectory(prefix="fdml-kill-batch-") as folder, reserved_port() as port:
        home = Path(folder) / "home"
        write_federation(home, rows, min(rows, _TRAINED), port)
        cluster = Cluster(home, port, _DEADLINE, live_or_ask)
        try:
            stand_by(cluster, home, port)
            add_rows(home)
            chance = random.Random(first)
            asked = [id_of(at) for at in chance.sample(range(rows), rows)]
            pq.write_table(pa.table({"id": asked}), home / "ids.parquet")
            runs = kill_runs(cluster, home, rows, range(first, first + seeds), progress)
        finally:
            cluster.stop()
    found = [
        (f"{who} killed: complete and equal", [each.identical for each in runs if each.killed == who])
        for who in VICTIMS
    ]
    found.append(("all: complete and equal", [each.identical for each in runs]))
    found.append(("all: the batch was under way when it was killed", [each.met for each in runs]))
    results = [
        {"contender": what, "median": sum(each), "min": sum(each), "max": len(each), "unit": "batches, of max"}
        for what, each in found
        if each
    ]
    question = f"How does a batch of {rows:,} ids end when one process is killed with kill -9 on the way?"
    return Report("kill-batch", question, results, {}, machine(), commit())


def kill_runs(cluster: Cluster, home: Path, rows: int, seeds: range, progress: Progress) -> list[KilledBatch]:
    """An undisturbed batch, then one with a kill for every seed."""
    calm = f"{BATCH}-calm"
    until(lambda: _has_all(cluster, home, calm, rows))
    wanted, blocks = _digest(home, calm), -(-rows // 2**16)
    progress(f"an undisturbed batch has {rows:,} scores in {blocks} blocks")
    runs = []
    for seed in seeds:
        runs.append(_one(cluster, home, seed, blocks, wanted))
        same = "the same file" if runs[-1].identical else "another file"
        progress(f"seed {seed}: {runs[-1].killed} killed after {runs[-1].blocks} blocks; ended with {same}")
    return runs


def _one(cluster: Cluster, home: Path, seed: int, blocks: int, wanted: bytes) -> KilledBatch:
    chance, victim, name = random.Random(seed), VICTIMS[seed % len(VICTIMS)], f"{BATCH}-{seed}"
    after = chance.randrange(blocks)
    cluster.start(name)
    until(lambda: _written(home, name) >= after, 0.001)
    met = not (home / f"{name}.parquet").exists()
    there = _written(home, name)
    killed = name if victim == BATCH else victim
    cluster.kill(killed)
    time.sleep(chance.uniform(0.0, 0.5))
    cluster.start(killed)
    cluster.await_end(name)
    return KilledBatch(victim, there, met, _digest(home, name) == wanted)


def _written(home: Path, name: str) -> int:
    """Blocks of a batch that are there; all of them once it is over, -1 before it has begun."""
    if (home / f"{name}.parquet").exists():
        return 2**31
    folder = home / f".{name}.parquet.blocks"
    return len(list(folder.glob("block-*.parquet"))) if folder.is_dir() else -1


def _has_all(cluster: Cluster, home: Path, name: str, rows: int) -> bool:
    """Whether every row has a score by now: the parties read their new files every two seconds."""
    out = home / f"{name}.parquet"
    out.unlink(missing_ok=True)
    cluster.start(name)
    cluster.await_end(name)
    if not out.exists():
        return False
    scores = pq.read_table(out, columns=["score"])["score"]
    return len(scores) == rows and scores.null_count == 0


def _digest(home: Path, name: str) -> bytes:
    try:
        with (home / f"{name}.parquet").open("rb") as file:
            return hashlib.file_digest(file, "blake2b").digest()
    except FileNotFoundError:
        return b""


def live_or_ask(home: Path, name: str, address: str) -> None:
    """Be one of the processes; a batch ends."""
    if not name.startswith(BATCH):
        live(home, name, address)
        return
    party = home / PARTIES[0] / "party.toml"
    try:
        with asking(party, server=address, seconds=_ANSWER_SECONDS) as asker:
            table = asked_file(home / "ids.parquet", read_party(party), asker.own.run).table
            predict_batch(asker, table, home / f"{name}.parquet", retry=Retry(_RETRY_SECONDS))
    except FdmlError:  # there is no output then, and that is told
        return
