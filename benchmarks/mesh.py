"""What does an exchange cost without a server? The same training over a server, at a host and in a mesh, at distances.

A push and its total cross the line twice where there is a server, and once in a mesh. Without lookahead that is the
time of an exchange. Seconds are counted from the end of the first epoch to the end of the last.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.cluster import seconds_at_epochs
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.network_profiles import LOOPBACK, NetworkProfile
from benchmarks.topologies import KINDS, Kind, topology

_LINES = (LOOPBACK, NetworkProfile("20 ms", 0.02), NetworkProfile("100 ms", 0.1))
_ROWS, _PARTIES, _EPOCHS = 4000, 3, 4
_BATCHES = 4
_HELD_OUT = 0.2


def run(progress: Progress, rounds: int = 3) -> Report:
    """Alternate the three for every round trip."""
    results, ratios = [], {}
    with tempfile.TemporaryDirectory(prefix="fdml-mesh-") as folder:
        for line in _LINES:
            found: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
            for turn in range(rounds):
                for kind in KINDS:
                    progress(f"{line.name}, {kind}, round {turn + 1} of {rounds}")
                    found[kind].append(exchange_seconds(Path(folder) / "run", kind, line))
            for kind, seconds in found.items():
                results.append(row(f"{line.name}, {kind}: per exchange", [1e3 * each for each in seconds], "ms"))
            for kind in KINDS[1:]:
                beside = [a / b for a, b in zip(found[kind], found["server"], strict=True)]
                ratios[f"{line.name} {kind}/server time"] = spread(beside)
    question = f"How long is an exchange without lookahead? {_PARTIES} parties, a block of {100 * _BATCHES} rows, TLS."
    return Report("mesh", question, results, ratios, machine(), commit())


def exchange_seconds(home: Path, kind: Kind, line: NetworkProfile) -> float:
    """Of a push until its total was learned from, in a run over such lines."""
    chance = np.random.default_rng(0)
    X = chance.normal(size=(_ROWS, 4 * _PARTIES)).astype(np.float32)
    labels = (X.sum(axis=1) > 0).astype(np.int64)
    settings = (
        f"[training]\nepochs = {_EPOCHS}\nbatch_size = 100\nbatches_per_block = {_BATCHES}\nlookahead = 0\n"
        f'learning_rate = "auto"\nvalue_bits = 64\n[evaluation]\nholdout = {_HELD_OUT}'
    )
    parts = [X[:, 4 * at : 4 * at + 4] for at in range(_PARTIES)]
    with topology(home, kind, settings, parts, labels, ["l2 = 1e-4"] * _PARTIES, line) as cluster:
        cluster.finish()
    seconds = seconds_at_epochs(home)
    shutil.rmtree(home)
    blocks = _ROWS * (1 - _HELD_OUT) / (100 * _BATCHES)
    return (seconds[_EPOCHS] - seconds[1]) / ((_EPOCHS - 1) * blocks)
