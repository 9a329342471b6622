"""What does the line cost? The same training over gRPC with TLS, beside the same in one process.

Seconds are counted from the end of the first epoch to the end of the last, so
that start-up does not count. All parties and the server share this machine.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cluster import running, seconds_at_epochs, write_run
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.experiments.in_process import train_in_process
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.protocol.messages import Hello, Labels, Push, Release
from fdml.server.run_state import RunDefinition, RunState
from fdml.settings import RunSettings, TrainingSettings, run_hash
from fdml.storage.disk import FolderDisk

_PARTIES = 3
_ROWS = 256_000
_WIDTH = 20
_HELD_OUT = 0.01
"""Few rows, as scoring them is no part of the line's cost."""
_FEW = TrainingSettings(epochs=3, batch_size=100, batches_per_block=1, value_bits=64, learning_rate="auto")
_MODEL = 'optimizer = "sgd"\nl2 = 1e-4'
"""As all commits had it, so that they can be timed beside each other."""
_MORE = _FEW.model_copy(update={"epochs": 6})
_SHAPES = {
    "1 batches per block": _FEW,
    "4 batches per block": _MORE.model_copy(update={"batches_per_block": 4}),
    "16 batches per block": _MORE.model_copy(update={"batches_per_block": 16}),
    "64 batches per block": _MORE.model_copy(update={"batches_per_block": 64}),
    "64 batches per block, 16 bits": _MORE.model_copy(update={"batches_per_block": 64, "value_bits": 16}),
}
_BLIND_AT = "16 batches per block"
"""Where a blind server is timed beside a plain one."""


def run(progress: Progress, rounds: int = 5) -> Report:
    """Alternate the two ways for every size of block."""
    X, labels = _data()
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="fdml-exchange-") as folder:
        for name, training in _SHAPES.items():
            here, there, masked = [], [], []
            for turn in range(rounds):
                progress(f"{name}, round {turn + 1} of {rounds}")
                here.append(_in_process(X, labels, training))
                there.append(_over_grpc(Path(folder), X, labels, training))
                if name == _BLIND_AT:
                    masked.append(_over_grpc(Path(folder), X, labels, training, server="blind"))
            updates = (int(training.epochs) - 1) * _ROWS * (1 - _HELD_OUT) / 100
            batches = int(training.batches_per_block)
            steps = updates / batches
            added = [1e6 * (a - b) / updates for a, b in zip(there, here, strict=True)]
            results += [
                row(f"{name}, in process: exchanges", [steps / seconds for seconds in here], "per second"),
                row(f"{name}, gRPC with TLS: exchanges", [steps / seconds for seconds in there], "per second"),
                row(f"{name}, gRPC with TLS: added per step", [each * batches for each in added], "us"),
                row(f"{name}, gRPC with TLS: added per batch", added, "us"),
            ]
            if masked:
                results.append(row(f"{name}, blind server: exchanges", [steps / each for each in masked], "per second"))
                slower = [a / b for a, b in zip(masked, there, strict=True)]
                ratios[f"{name} blind/plain server time"] = spread(slower)
            ratios[f"{name} gRPC/in-process time"] = spread([a / b for a, b in zip(there, here, strict=True)])
        progress("restart of a server with 1,000,000 rows and 8 parties")
        results.append(row("server ready again, 1 M rows x 8 parties", _restarts(Path(folder)), "seconds"))
    question = f"What does the line add to a step? {_PARTIES} parties, {_ROWS} rows, on one machine, durability on."
    return Report("exchange", question, results, ratios, machine(), commit())


def _data() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    chance = np.random.default_rng(0)
    X = chance.normal(size=(_ROWS, _WIDTH * _PARTIES)).astype(np.float32)
    return X, (X.sum(axis=1) > 0).astype(np.int64)


def _parts(X: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    return [np.ascontiguousarray(X[:, at * _WIDTH : (at + 1) * _WIDTH]) for at in range(_PARTIES)]


def _in_process(X: NDArray[np.float32], labels: NDArray[np.int64], training: TrainingSettings) -> float:
    rows = round(_ROWS * (1 - _HELD_OUT))
    parts = {f"p{at}": as_rows(part[:rows]) for at, part in enumerate(_parts(X))}
    sample = RowSet(parts, labels[:rows].astype(np.float64), np.ones(rows))
    plan = Plan(training, dict.fromkeys(parts, model_settings(optimizer="sgd", l2=1e-4)), "p0", "logistic", 2)
    kept = train_in_process(plan, sample, keep_epochs=True).snapshots
    return kept[-1].seconds - kept[0].seconds


def _over_grpc(
    folder: Path,
    X: NDArray[np.float32],
    labels: NDArray[np.int64],
    training: TrainingSettings,
    server: str = "plain",
) -> float:
    home = folder / "run"
    settings_text = (
        f"[training]\nepochs = {training.epochs}\nbatch_size = 100\nbatches_per_block = {training.batches_per_block}\n"
        f'learning_rate = "auto"\nvalue_bits = {training.value_bits}\n'
        f'[evaluation]\nholdout = {_HELD_OUT}\n[privacy]\nserver = "{server}"'
    )
    write_run(home, settings_text, _parts(X), labels, [_MODEL] * _PARTIES)
    with running(home, [f"p{at}" for at in range(_PARTIES)]) as cluster:
        cluster.finish()
    seconds = seconds_at_epochs(home)
    shutil.rmtree(home)
    return seconds[int(training.epochs)] - seconds[1]


def _restarts(folder: Path, rows: int = 1_000_000, parties: int = 8, times: int = 3) -> list[float]:
    """Fill a server's state with two epochs of pushes, then open it again."""
    names = tuple(f"p{number}" for number in range(parties))
    settings = RunSettings(
        parties=names, label_party="p0", training=TrainingSettings(epochs=3, batch_size=100, batches_per_block=256)
    )
    definition = RunDefinition(settings, run_hash(settings))
    disk = FolderDisk(folder / "server")
    state = RunState.open(definition, disk)
    for name in names:
        state.take(name, Hello(definition.run_hash, bytes(32), rows, 0, 1))
    state.take("p0", Labels(2, bytes(Labels.sealed_size(settings.task, 2, rows))))
    if state.coordinator is None:
        raise AssertionError("labels begin the training")
    for step in range(2 * state.coordinator.schedule.blocks):
        codes = np.zeros(state.coordinator.schedule.visit(step).size, np.int64)
        for name in names:
            state.take(name, Push(step, Release(codes)))
        state.commit()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        again = RunState.open(definition, disk)
        seconds.append(time.perf_counter() - began)
        if again.fingerprint() != state.fingerprint():
            raise AssertionError("a server that is opened again must be as it was")
    return seconds
