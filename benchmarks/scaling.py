"""How do time, memory and traffic grow with rows, parties, non-zeros and scores?

Every point is a run of processes over TLS with durability on. Seconds are of an
epoch after the first; memory is the largest resident size of each process, bytes
are those that crossed the server's lines, both by the process's own count. The
server's time per step is what it had of the CPU while its log grew by so many
steps, so neither its start nor the alignment counts. The exponent is the slope of
a straight line through the points on log axes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.cluster import Cluster, finished_state, running, seconds_at_epochs, server_state, usages
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report
from benchmarks.sparse_run import Data, write_run
from fdml.errors import StateCorrupt
from fdml.settings.choices import Task
from fdml.settings.federation import read_run

_MEBIBYTE = 2**20
_VISITS = 4_000_000
"""So many rows are visited, in `_FEWEST` epochs or more, that small runs last long enough to be timed."""
_FEWEST = 3
_PER_BLOCK = 512
_LOOK_SECONDS = 0.01
_DEADLINE = 900.0
_SEED = 7


@dataclass(frozen=True)
class Size:
    """What one run is made of."""

    rows: int = 200_000
    parties: int = 3
    entries: int = 20
    """Non-zeros of a row at each party."""
    scores: int = 1
    width: int = 2_000
    """Features of each party."""

    @property
    def epochs(self) -> int:
        """How often the rows are passed over."""
        return max(_FEWEST, _VISITS // (self.rows * self.scores))


@dataclass(frozen=True)
class Point:
    """What one run took."""

    size: Size
    seconds: float
    """Of an epoch."""
    server_seconds: float
    """CPU time of the server per step."""
    party_memory: float
    """MiB of the largest party."""
    server_memory: float
    sent: float
    """Bytes that a party sent in an epoch, alignment and labels spread over all."""


def run(progress: Progress, rows: int = 5_000_000) -> Report:
    """Vary one thing at a time; `rows` is the largest number of rows."""
    base = Size()
    counts = [count for count in (100_000, 500_000, 1_000_000, 5_000_000) if count <= rows]
    series: dict[str, list[Size]] = {
        "rows": [replace(base, rows=count) for count in counts],
        "parties": [replace(base, parties=count) for count in (2, 3, 5, 10)],
        "entries": [replace(base, entries=count) for count in (5, 20, 80)],
        "scores": [replace(base, scores=count) for count in (1, 3, 10)],
    }
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    for what, sizes in series.items():
        points = []
        for size in sizes:
            progress(f"{what}: {getattr(size, what):,}")
            points.append(measure(size))
            results += _rows(what, points[-1])
        across = [getattr(point.size, what) for point in points]
        for name in ("seconds", "server_seconds", "party_memory", "server_memory", "sent"):
            slope = exponent(across, [getattr(point, name) for point in points])
            title = f"exponent of {name.replace('_', ' ')} against {what}"
            ratios[title] = {"median": slope, "min": slope, "max": slope}
    question = (
        f"How do time, memory and traffic grow? Where nothing else is said: {base.rows:,} rows, {base.parties} "
        f"parties, {base.entries} non-zeros of {base.width:,} features at each, LR, one run per point."
    )
    return Report("growth", question, results, ratios, machine(), commit())


def exponent(across: Sequence[float], up: Sequence[float]) -> float:
    """The slope of the best straight line on log axes."""
    return float(np.polyfit(np.log(across), np.log(up), 1)[0])


def measure(size: Size) -> Point:
    """One run of processes of this size."""
    with tempfile.TemporaryDirectory(prefix="fdml-growth-") as folder:
        home = Path(folder) / "run"
        task: Task = "multiclass" if size.scores > 1 else "binary"
        write_run(home, _data(size), "linear", task, epochs=size.epochs, batches_per_block=_PER_BLOCK)
        settings = read_run(home / "run.toml")
        with running(home, settings.parties, _DEADLINE) as cluster:
            per_byte = _server_time(cluster, server_state(home) / "journal")
            cluster.finish()
        state, seconds = finished_state(home), seconds_at_epochs(home)
        used = usages(home, settings.parties)
    if state.coordinator is None:
        raise StateCorrupt(f"the server's log of {size} holds no training")
    schedule = state.coordinator.schedule
    pushed = size.parties * schedule.rows * size.scores * int(settings.training.value_bits) // 8
    return Point(
        size,
        (seconds[size.epochs] - seconds[1]) / (size.epochs - 1),
        per_byte * pushed / schedule.blocks,
        max(each.memory for name, each in used.items() if name != "server"),
        used["server"].memory,
        max(came for came, _ in used["server"].traffic.values()) / size.epochs,
    )


def _server_time(cluster: Cluster, log: Path) -> float:
    """Seconds of CPU the server takes for each byte of pushes, from the first quarter of its log to the end."""
    seen: list[tuple[float, int]] = []
    while (cpu := cluster.cpu("server")) is not None:
        seen.append((cpu, log.stat().st_size if log.exists() else 0))
        time.sleep(_LOOK_SECONDS)
    whole = seen[-1][1]
    began = next(at for at, (_, size) in enumerate(seen) if size > whole / 4)
    ended = next(at for at, (_, size) in enumerate(seen) if size > 0.99 * whole)
    return (seen[ended][0] - seen[began][0]) / (seen[ended][1] - seen[began][1])


def _data(size: Size) -> Data:
    chance = np.random.default_rng(_SEED)
    step = size.width // size.entries
    parts, score = [], np.zeros((size.rows, size.scores))
    for _ in range(size.parties):
        places = chance.integers(0, step, (size.rows, size.entries))
        columns = (np.arange(size.entries) * step + places).astype(np.int32)
        weights = chance.normal(size=(size.width, size.scores)) / np.sqrt(size.entries)
        for at in range(size.entries):
            score += weights[columns[:, at]]
        pointers = np.arange(size.rows + 1, dtype=np.int64) * size.entries
        values = np.ones(size.rows * size.entries, np.float32)
        parts.append(sp.csr_array((values, columns.reshape(-1), pointers), shape=(size.rows, size.width)))
    labels = score.argmax(axis=1) if size.scores > 1 else (score[:, 0] > 0).astype(np.int64)
    return Data(parts, labels.astype(np.int64))


def _rows(what: str, point: Point) -> list[dict[str, Any]]:
    name = f"{getattr(point.size, what):,} {what}"
    figures = {
        "an epoch": (point.seconds, "seconds"),
        "server, per step": (1e3 * point.server_seconds, "ms of CPU"),
        "largest party": (point.party_memory, "MiB"),
        "server": (point.server_memory, "MiB"),
        "a party's traffic up in an epoch": (point.sent / _MEBIBYTE, "MiB"),
    }
    return [
        {"contender": f"{name}: {figure}", "median": value, "min": value, "max": value, "unit": unit}
        for figure, (value, unit) in figures.items()
    ]
