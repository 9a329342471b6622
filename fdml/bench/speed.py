"""Is joint training as fast as pooled training? Three parties over TLS, durable, beside the same kernels in one place.

Pooled is the kernel alone: all features in one process, one pass of updates over
every block, no prediction to push and nothing to exchange. Joint is a server and
three parties as processes on the same machine, over mutual TLS, every push logged
before it is answered. The two take turns.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fdml.bench.cluster import running
from fdml.bench.machine import commit, machine
from fdml.bench.measure import Progress, Report, row, spread
from fdml.data.disk import FolderDisk
from fdml.data.rows import SparseRows, as_rows
from fdml.data.schedule import Schedule, schedule_for
from fdml.party.kernels import LOGISTIC, Lesson, no_lesson
from fdml.party.models import Compiled, build_compiled
from fdml.run.keeping import forget_training
from fdml.run.scaffold import free_port, write_keys
from fdml.server.host import Charter, Host
from fdml.settings import Kind, ModelSettings, Task, read_run, run_hash

SPLITS = {"20/20/20": (20, 20, 20), "48/7/5": (48, 7, 5)}
"""Non-zeros of a row at each party."""
_WIDTHS = {"20/20/20": (2900, 2900, 2900), "48/7/5": (7000, 1000, 700)}
_MODELS: dict[str, Kind] = {"LR": "linear", "NN": "mlp"}
_TARGETS = {
    ("LR", "20/20/20"): (1.0, 1.3),
    ("LR", "48/7/5"): (1.0, 1.5),
    ("NN", "20/20/20"): (0.7, 1.0),
    ("NN", "48/7/5"): (0.9, 1.2),
}
"""What is aimed at, and what is accepted with a profile."""
_BATCH = 100
_PER_BLOCK = 256
_HELD_OUT = 0.005
_RATE = 0.1
_L2 = 1e-5
_SEED = 7


@dataclass(frozen=True)
class Data:
    """One split: each party's rows, and the labels."""

    parts: Sequence[sp.csr_array]
    labels: NDArray[np.int64]


def run(progress: Progress, rows: int = 1_000_000, rounds: int = 5) -> Report:
    """Alternate pooled and joint for both models and both splits."""
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    found = machine()
    with tempfile.TemporaryDirectory(prefix="fdml-speed-") as folder:
        for split in SPLITS:
            progress(f"making {rows:,} rows, {split}")
            data = make_data(rows, split)
            for model, kind in _MODELS.items():
                home = Path(folder) / f"{model}-{split.replace('/', '-')}"
                write_run(home, data, kind, epochs=6 if model == "LR" else 3)
                pooled, joint = _alternate(home, data, kind, rounds, partial(_told, progress, f"{model} {split}"))
                shutil.rmtree(home)
                name = f"{model}, {split}"
                trained = round(rows * (1 - _HELD_OUT))
                results.append(row(f"{name}, pooled kernel", [trained / each for each in pooled], "rows per second"))
                results.append(row(f"{name}, joint", [trained / each for each in joint], "rows per second"))
                goal, accepted = _TARGETS[model, split]
                ratios[f"{model} joint/pooled time, {split}"] = {
                    **spread([a / b for a, b in zip(joint, pooled, strict=True)]),
                    "goal": goal,
                    "accepted": accepted,
                }
    question = (
        f"How long does an epoch of joint training take beside pooled training with the same kernels? {rows:,} rows x "
        f"60 non-zeros, 3 parties and a server over TLS with durability on, {_PER_BLOCK} batches per block, "
        f"predictions of 16 bits."
    )
    return Report("speed", question, results, ratios, found, commit())


def _told(progress: Progress, what: str, text: str) -> None:
    progress(f"{what}: {text}")


def make_data(rows: int, split: str) -> Data:
    """Rows with so many non-zeros at each party, a row's features spread evenly over the party's."""
    chance = np.random.default_rng(_SEED)
    parts, score = [], np.zeros(rows)
    for entries, width in zip(SPLITS[split], _WIDTHS[split], strict=True):
        step = width // entries
        columns = (np.arange(entries) * step + chance.integers(0, step, (rows, entries))).astype(np.int32)
        weights = chance.normal(size=width) / np.sqrt(20.0)
        score += weights[columns].sum(axis=1)
        pointers = np.arange(rows + 1, dtype=np.int64) * entries
        values = np.ones(rows * entries, np.float32)
        parts.append(sp.csr_array((values, columns.reshape(-1), pointers), shape=(rows, width)))
    return Data(parts, (score + chance.logistic(size=rows) > 0).astype(np.int64))


def write_run(home: Path, data: Data, kind: Kind, epochs: int, task: Task = "binary", **training: object) -> None:
    """A run of processes over this data, rows matched by position."""
    names = [f"p{number}" for number in range(len(data.parts))]
    chosen = {"epochs": epochs, "batches_per_block": _PER_BLOCK, "value_bits": 16, "learning_rate": _RATE} | training
    lines = "\n".join(f"{name} = {value}" for name, value in chosen.items())
    home.mkdir(parents=True)
    (home / "run.toml").write_text(
        f'name = "speed"\nserver = "127.0.0.1:{free_port()}"\nparties = {names!r}\nlabel_party = "p0"\n'
        f'task = "{task}"\n'
        f"[training]\n{lines}\n[evaluation]\nholdout = {_HELD_OUT}\n"
    )
    write_keys(home, "speed", names)
    for number, (name, part) in enumerate(zip(names, data.parts, strict=True)):
        arrays: dict[str, Any] = {"indptr": part.indptr, "indices": part.indices, "data": part.data}
        arrays |= {"format": np.array(b"csr"), "shape": np.array(part.shape)}
        if number == 0:
            arrays["y"] = data.labels
        np.savez(home / name / "data.npz", **arrays)
        (home / name / "party.toml").write_text(
            f'party = "{name}"\nrun = "../run.toml"\n[data]\npath = "data.npz"\n[model]\nkind = "{kind}"\nl2 = {_L2}\n'
        )


def _alternate(home: Path, data: Data, kind: Kind, rounds: int, progress: Progress) -> tuple[list[float], list[float]]:
    """Seconds per epoch of pooled and joint, round by round."""
    rows, labels = _pooled(data)
    pooled, joint = [], []
    for turn in range(rounds + 1):
        progress(f"round {turn} of {rounds}" if turn else "warm-up")
        pooled.append(pooled_epoch(rows, labels, kind))
        joint.append(joint_epoch(home))
    return pooled[1:], joint[1:]


def _pooled(data: Data) -> tuple[SparseRows, NDArray[np.float64]]:
    """The rows that are trained on, all features in one place."""
    count = round(len(data.labels) * (1 - _HELD_OUT))
    whole = as_rows(sp.csr_array(sp.hstack(list(data.parts), format="csr"))[:count])
    if not isinstance(whole, SparseRows):
        raise TypeError(f"sparse rows are stored as {type(whole).__name__}")
    return whole, data.labels[:count].astype(np.float64)


def pooled_epoch(rows: SparseRows, labels: NDArray[np.float64], kind: Kind) -> float:
    """Seconds of one pass of updates over all rows, as a pooled trainer would make it."""
    schedule = schedule_for(len(labels), _BATCH, _PER_BLOCK, 1, 2, _SEED)
    model = build_compiled(ModelSettings(kind=kind, l2=_L2), rows.width, 1, bias=True, key=(_SEED, "pooled"))
    model.learn(rows, no_lesson(1, model.dtype))
    for step in range(schedule.blocks):
        _learn(model, rows, labels, schedule, step)
    began = time.perf_counter()
    for step in range(schedule.blocks, 2 * schedule.blocks):
        _learn(model, rows, labels, schedule, step)
    return time.perf_counter() - began


def _learn(model: Compiled, rows: SparseRows, labels: NDArray[np.float64], schedule: Schedule, step: int) -> None:
    visit = schedule.visit(step)
    edges = schedule.edges(visit)
    nothing = np.zeros((visit.size, 1), np.float32)
    rates = np.full(len(edges) - 1, _RATE)
    mine, weights = labels[visit.start : visit.stop], np.ones(visit.size)
    order = schedule.order(visit, 0)
    model.learn(rows, Lesson(visit.start, order, edges, rates, nothing, nothing, 1.0, mine, weights, LOGISTIC))


def joint_epoch(home: Path) -> float:
    """Seconds of an epoch of a run of processes, without the first; aligned once, trained anew each time."""
    settings = read_run(home / "run.toml")
    forget(home, settings.parties)
    with running(home, settings.parties) as cluster:
        cluster.finish()
    history = Host.open(Charter(settings, run_hash(settings)), FolderDisk(home / "server" / "state")).history
    return (history[settings.training.epochs].seconds - history[1].seconds) / (settings.training.epochs - 1)


def forget(home: Path, parties: Sequence[str]) -> None:
    """Keep the alignment and forget the training, at every side."""
    for party in parties:
        forget_training(FolderDisk(home / party / "state"))
    server = FolderDisk(home / "server" / "state")
    for name in ("journal", "snapshot.0", "snapshot.1"):
        server.remove(name)
