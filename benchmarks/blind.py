"""What does a blind server cost? The same training under masks of pairs, beside the same without masks.

Plain and blind take turns, and who goes first alternates. Seconds are counted from
the end of the first epoch on. All sides share this machine.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.cluster import running, seconds_at_epochs, usages, write_run
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread

_PARTIES = ("p0", "p1", "p2")
_ROWS = 256_000
_WIDTH = 20
_HELD_OUT = 0.01
"""Few rows, as scoring them is no part of the masks' cost."""
_BATCHES = 16
"""Per block."""
_EPOCHS = 11


class _Timed(NamedTuple):
    """What one run took."""

    seconds: float
    """From the end of the first epoch to the end of the last."""
    cpu: float
    """Processor time of all sides, from their start to their end."""


def run(progress: Progress, rounds: int = 5) -> Report:
    """Alternate the two servers."""
    chance = np.random.default_rng(0)
    X = chance.normal(size=(_ROWS, _WIDTH * len(_PARTIES))).astype(np.float32)
    labels = (X.sum(axis=1) > 0).astype(np.int64)
    found: dict[str, list[_Timed]] = {"plain": [], "blind": []}
    with tempfile.TemporaryDirectory(prefix="fdml-blind-") as folder:
        for turn in range(rounds):
            for server in sorted(found, reverse=bool(turn % 2)):
                progress(f"round {turn + 1} of {rounds}, {server} server")
                found[server].append(_train(Path(folder), X, labels, server))
    plain, blind = found["plain"], found["blind"]
    epoch = _ROWS * (1 - _HELD_OUT) / (_BATCHES * 100)
    pairs = list(zip(blind, plain, strict=True))
    added = [1e6 * (a.cpu - b.cpu) / (_EPOCHS * epoch * len(_PARTIES)) for a, b in pairs]
    steps = (_EPOCHS - 1) * epoch
    results = [
        row("plain server: step", [1e3 * each.seconds / steps for each in plain], "ms"),
        row("blind server: step", [1e3 * each.seconds / steps for each in blind], "ms"),
        row("blind server: added to a step of one party", added, "us of processor time, the server's included"),
    ]
    ratios = {"blind/plain step, at most 1.2": spread([a.seconds / b.seconds for a, b in pairs])}
    question = f"What does a blind server cost? {len(_PARTIES)} parties, {_ROWS} rows, {_BATCHES} batches per block."
    return Report("blind", question, results, ratios, machine(), commit())


def _train(folder: Path, X: NDArray[np.float32], labels: NDArray[np.int64], server: str) -> _Timed:
    home = folder / "run"
    parts = [np.ascontiguousarray(part) for part in np.split(X, len(_PARTIES), axis=1)]
    settings = (
        f"[training]\nepochs = {_EPOCHS}\nbatch_size = 100\nbatches_per_block = {_BATCHES}\n"
        f'learning_rate = "auto"\nvalue_bits = 64\n[evaluation]\nholdout = {_HELD_OUT}\n[privacy]\nserver = "{server}"'
    )
    write_run(home, settings, parts, labels, ['optimizer = "sgd"\nl2 = 1e-4'] * len(_PARTIES))
    with running(home, _PARTIES) as cluster:
        cluster.finish()
    seconds, cpu = seconds_at_epochs(home), sum(each.cpu for each in usages(home, _PARTIES).values())
    shutil.rmtree(home)
    return _Timed(seconds[_EPOCHS] - seconds[1], cpu)
