"""Is joint training as fast as pooled training? Three parties over TLS, durable, beside the same kernels in one place.

Pooled is the kernel alone: all features in one process, one pass of updates over
every block, no prediction to push and nothing to exchange. Joint is a server and
three parties as processes on the same machine, over mutual TLS, every push logged
before it is answered; once with one pass over a block after each exchange, once with
two. What is compared is the time of a pass over all rows, and the AUC after equally
many. All take turns.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.app_store import CLOSE
from benchmarks.baselines import ScikitLearn, TorchPooled
from benchmarks.cluster import history_of, running, seconds_at_epochs
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.pooled import PooledTrainer, train_pooled
from benchmarks.sparse_run import HELD_OUT, L2, RATE, Data, forget, write_run
from fdml.data.row_set import RowSet
from fdml.data.rows import SparseRows, as_rows
from fdml.experiments.party_folders import dataset_of, read_party_folders
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.settings import TrainingSettings
from fdml.settings.federation import read_run

SPLITS = {"20/20/20": (20, 20, 20), "48/7/5": (48, 7, 5)}
"""Non-zeros of a row at each party."""
_WIDTHS = {"20/20/20": (2900, 2900, 2900), "48/7/5": (7000, 1000, 700)}
_MODELS: dict[str, str] = {"LR": "linear", "NN": "mlp"}
_TARGETS = {
    ("LR", "20/20/20"): (1.0, 1.3),
    ("LR", "48/7/5"): (1.0, 1.5),
    ("NN", "20/20/20"): (0.7, 1.0),
    ("NN", "48/7/5"): (0.9, 1.2),
}
"""What is aimed at, and what is accepted with a profile."""
PER_BLOCK: dict[str, int] = {"linear": 2048, "mlp": 512}
"""Batches per block: an NN computes long enough on fewer."""
_BATCH = 100
_SEED = 7
_MANY = 1_000
"""More epochs than anyone trains here: the step size stays the same."""
_TRAINED = {"LR": 6, "NN": 4}
"""Passes over the rows that a joint run makes."""
_POOLED, _SKLEARN, _TORCH = "pooled kernel", "SGDClassifier", "torch"
_JOINT = {1: "joint", 2: "joint, 2 passes per exchange"}
_BASELINE_TARGETS = {_SKLEARN: 1.5, _TORCH: 20.0}
"""How many times as long as joint training each must take."""


def run(progress: Progress, rows: int = 1_000_000, rounds: int = 5) -> Report:
    """Alternate pooled and joint for both models and both splits, and for LR the baselines."""
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    found = machine()
    with tempfile.TemporaryDirectory(prefix="fdml-speed-") as folder:
        for split in SPLITS:
            progress(f"making {rows:,} rows, {split}")
            data = make_data(rows, split)
            pooled = pooled_sample(data)
            for model, kind in _MODELS.items():
                folders = {
                    name: Path(folder) / f"{model}-{split.replace('/', '-')}-{passes}"
                    for passes, name in _JOINT.items()
                }
                for passes, name in _JOINT.items():
                    epochs = _TRAINED[model] // passes
                    write_run(
                        folders[name], data, kind, epochs=epochs, passes=passes, batches_per_block=PER_BLOCK[kind]
                    )
                seconds = _alternate(folders, pooled, kind, rounds, partial(_prefixed, progress, f"{model} {split}"))
                results += [
                    row(f"{model}, {split}, {name}", [len(pooled) / each for each in spent], "rows per second")
                    for name, spent in seconds.items()
                ]
                ratios |= _ratios(model, split, seconds) | _losses(model, split, folders)
                for home in folders.values():
                    shutil.rmtree(home)
    question = (
        f"How long does a pass over all rows take in joint training, beside pooled training with the same kernels? "
        f"{rows:,} rows x 60 non-zeros, 3 parties and a server over TLS with durability on, {PER_BLOCK['linear']} "
        f"batches per block for LR and {PER_BLOCK['mlp']} for the NN, predictions of 16 bits; for LR also beside "
        f"scikit-learn's SGDClassifier and torch's EmbeddingBag, pooled. AUC after {_TRAINED['LR']} passes over the "
        f"rows for LR and {_TRAINED['NN']} for the NN."
    )
    return Report("speed", question, results, ratios, found, commit())


def _ratios(model: str, split: str, seconds: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    goal, accepted = _TARGETS[model, split]
    found = {
        f"{model} {name}/pooled time, {split}": _times(seconds[name], seconds[_POOLED])
        | {"goal": goal, "accepted": accepted}
        for name in _JOINT.values()
    }
    for baseline, target in _BASELINE_TARGETS.items():
        if baseline in seconds:
            against = _times(seconds[baseline], seconds[_JOINT[1]])
            found[f"{model} {baseline}/joint time, {split}"] = against | {"target": target}
    return found


def _losses(model: str, split: str, folders: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """By how much the test AUC of the last joint runs is below that of pooled training on the same rows."""
    best = pooled_auc(folders[_JOINT[1]], _TRAINED[model])
    ends = {name: history_of(home) for name, home in folders.items()}
    return {
        f"{model} pooled AUC {best:.4f} less {name}, {split}": spread([best - (ended[max(ended)].test_metric or 0.0)])
        | {"at_most": CLOSE[model]}
        for name, ended in ends.items()
    }


def pooled_auc(home: Path, passes: int) -> float:
    """The test AUC of pooled training on the rows of a joint run that was trained, after so many passes over them."""
    settings = read_run(home / "run.toml")
    folders = read_party_folders(home / "run.toml", settings)
    training = settings.training.model_copy(update={"epochs": passes, "passes": 1})
    model = folders[settings.label_party].folder.settings.model
    *_, last = train_pooled(dataset_of(settings, folders).pooled(), model, training)
    return last.test_metric


def _times(above: Sequence[float], below: Sequence[float]) -> dict[str, Any]:
    return spread([a / b for a, b in zip(above, below, strict=True)])


def _prefixed(progress: Progress, what: str, text: str) -> None:
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


def _alternate(
    folders: Mapping[str, Path], pooled: RowSet, kind: str, rounds: int, progress: Progress
) -> dict[str, list[float]]:
    """Seconds of a pass over all rows of all contenders, round by round."""
    contenders: dict[str, Callable[[], float]] = {_POOLED: pooled_for(pooled, kind).epoch}
    contenders |= {name: partial(joint_pass, home) for name, home in folders.items()}
    if kind == "linear":
        contenders |= baselines_for(pooled)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        progress(f"round {turn} of {rounds}" if turn else "warm-up")
        for name, work in contenders.items():
            spent = work()
            if turn:
                seconds[name].append(spent)
    return seconds


def pooled_sample(data: Data) -> RowSet:
    """The rows that are trained on, all features in one place."""
    count = round(len(data.labels) * (1 - HELD_OUT))
    whole = as_rows(sp.csr_array(sp.hstack(list(data.parts), format="csr"))[:count])
    return RowSet({"pooled": whole}, data.labels[:count].astype(np.float64), np.ones(count))


def pooled_for(pooled: RowSet, kind: str) -> PooledTrainer:
    """A pooled trainer with the settings of the joint run."""
    training = TrainingSettings(
        epochs=_MANY, batch_size=_BATCH, batches_per_block=PER_BLOCK[kind], learning_rate=RATE, lr_decay="constant"
    )
    return PooledTrainer(
        Plan(training, {"pooled": model_settings(kind, optimizer="sgd", l2=L2)}, "pooled", "logistic", 2), pooled
    )


def baselines_for(pooled: RowSet) -> dict[str, Callable[[], float]]:
    """Logistic regression of others, pooled; torch is timed on a part of the batches."""
    rows = pooled.parts["pooled"]
    if not isinstance(rows, SparseRows):
        raise TypeError(f"sparse rows are stored as {type(rows).__name__}")
    scikit_learn = ScikitLearn(rows, pooled.labels, rate=RATE, l2=L2)
    torch = TorchPooled(model_settings(optimizer="sgd", l2=L2), rows, pooled.labels, rate=RATE, batch=_BATCH)
    return {_SKLEARN: scikit_learn.epoch, _TORCH: torch.epoch}


def joint_pass(home: Path) -> float:
    """Seconds of a pass over the rows in a run of processes, the first epoch not counted.

    It is aligned once, and trained anew each time.
    """
    settings = read_run(home / "run.toml")
    forget(home, settings.parties)
    with running(home, settings.parties) as cluster:
        cluster.finish()
    seconds, training = seconds_at_epochs(home), settings.training
    epochs = int(training.epochs)
    return (seconds[epochs] - seconds[1]) / (epochs - 1) / training.passes
