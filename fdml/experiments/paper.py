"""The paper's experiment on a9a, with the settings measured to be best without looking at test rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.data.partition import partition
from fdml.data.row_set import RowSet
from fdml.data.rows import DenseRows, take, to_scipy
from fdml.data.samples.adult import a9a
from fdml.data.table import PartyData
from fdml.errors import FdmlError
from fdml.events import Listener
from fdml.experiments.compare import Contender
from fdml.experiments.dataset import JointDataset, build_dataset
from fdml.experiments.evaluate import learning_curve
from fdml.experiments.in_process import train_in_process
from fdml.federation.processes import run_processes
from fdml.federation.run_folder import MODEL, RUNS, STATE
from fdml.federation.scaffold import write_keys
from fdml.models.bundle import Bundle
from fdml.models.registry import model_settings
from fdml.monitor.history import EpochRecord, Scheme
from fdml.monitor.listeners import ignore_events
from fdml.party.alignment_store import aligned_train_rows
from fdml.party.plan import Plan
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.shuffle import permutation
from fdml.settings import ModelSettings, TrainingSettings
from fdml.storage.arrays import hash_arrays
from fdml.storage.disk import FolderDisk

PARTIES = ("party-0", "party-1")
GROUPS = (range(67), range(67, 123))
_RUN = f"{RUNS}/demo"

PAPER: dict[tuple[str, Scheme], EpochRecord] = {
    ("LR", "alone"): EpochRecord(40, 41, 0.3625, 0.3509, 0.8850),
    ("LR", "pooled"): EpochRecord(40, 45, 0.3359, 0.3247, 0.9025),
    ("LR", "joint"): EpochRecord(40, 99, 0.3352, 0.3246, 0.9026),
    ("NN", "alone"): EpochRecord(40, 53, 0.3652, 0.3484, 0.8864),
    ("NN", "pooled"): EpochRecord(40, 57, 0.4008, 0.3235, 0.9042),
    ("NN", "joint"): EpochRecord(40, 110, 0.4170, 0.3272, 0.9035),
}
"""Table 2 of Hu et al., KDD 2019; it has no late fusion."""


def a9a_dataset() -> JointDataset:
    """a9a with features 1..67 at the label party and 68..123 at the other."""
    data = a9a()
    if data.test is None:
        raise AssertionError("the bundled a9a has test rows")
    train, test = partition(data.train, GROUPS), partition(data.test, GROUPS)
    parties = {name: PartyData(train[at], test[at]) for at, name in enumerate(PARTIES)}
    return build_dataset(parties, PARTIES[0], "binary", "logistic", holdout=0.5, seed=0)


def write_a9a_run(folder: Path, problem: JointDataset, contender: Contender, seed: int, server: str) -> None:
    """The joint training of one contender as a run of processes: settings, keys and each party's rows."""
    training = _training(contender, seed, len(problem.train))
    listed = ", ".join(f'"{name}"' for name in PARTIES)
    folder.mkdir()
    (folder / "federation.toml").write_text(f'name = "demo"\nserver = "{server}"\nparties = [{listed}]\n')
    (folder / "run.toml").write_text(
        f'name = "demo"\nlabel_party = "{PARTIES[0]}"\n'
        f"[training]\n{_toml(training.model_dump(exclude_defaults=True) | {'seed': seed})}\n"
    )
    write_keys(folder, "demo", PARTIES)
    for name in PARTIES:
        model = contender.models[name]
        (folder / name / "party.toml").write_text(
            f'party = "{name}"\nfederation = "../federation.toml"\n[align]\nmax_rows = {len(problem.train)}\n'
            f'[data]\npath = "train.npz"\ntest_path = "test.npz"\n'
            f"[model]\n{_toml({'kind': model.kind} | model.model_dump(mode='json', exclude_defaults=True))}\n"
        )
        for file, sample in (("train.npz", problem.train), ("test.npz", problem.test)):
            _write_rows(folder / name / file, sample, name, seed)


def _training(contender: Contender, seed: int, rows: int) -> TrainingSettings:
    """With nothing left that would follow from the line: on a busy machine that is slow, and the twin has none."""
    training = contender.training.model_copy(update={"seed": seed})
    agreed = agreed_training(training, rows, len(PARTIES))
    by_line = ("batches_per_block", "lookahead", "value_bits")
    return training.model_copy(update={name: getattr(agreed, name) for name in by_line})


def _toml(settings: Mapping[str, Any]) -> str:
    return "\n".join(f"{name} = {value!r}" for name, value in settings.items())


def joint_by_processes(
    problem: JointDataset, contender: Contender, seed: int, folder: Path, on_event: Listener = ignore_events
) -> list[EpochRecord]:
    """Train the joint model as server and parties in processes over mutual TLS, which first find their shared rows.

    The models must be those that the same training in one process gives, to the bit;
    the figures are of that twin, the seconds are the processes'.
    """
    write_a9a_run(folder, problem, contender, seed, "127.0.0.1:0")
    found = run_processes(folder / "run.toml", on_event=on_event)
    ordered = replace(problem, train=problem.train.take(_order_found(folder, len(problem.train), seed)))
    training = _training(contender, seed, len(problem.train))
    plan = Plan(training, contender.models, problem.label_party, problem.loss, problem.encoding.class_count)
    twin = train_in_process(plan, ordered.train, held_out=ordered.test, keep_epochs=True)
    for name, model in twin.models.items():
        saved = Bundle.load(folder / name / _RUN / MODEL).parameters
        if hash_arrays(saved) != hash_arrays(model.state()):
            raise FdmlError(
                f"{name}'s model differs from the one trained in one process, at seed {seed}: a bug, report it"
            )
    seconds = [row["seconds"] for row in found["history"]]
    return [replace(each, seconds=at) for each, at in zip(learning_curve(ordered, twin), seconds, strict=True)]


def _order_found(folder: Path, rows: int, seed: int) -> NDArray[np.int64]:
    """The run's order as numbers of a9a's own rows; every party must have found the same."""
    orders = [
        _mixed(rows, seed, name)[aligned_train_rows(FolderDisk(folder / name / _RUN / STATE))] for name in PARTIES
    ]
    if not all(np.array_equal(order, orders[0]) for order in orders):
        raise FdmlError(f"the parties aligned different rows, at seed {seed}: a bug, report it")
    return orders[0]


def _mixed(rows: int, seed: int, party: str) -> NDArray[np.int64]:
    """The order in which a party's own file has the rows."""
    return permutation(rows, seed, "file of", party)


def _write_rows(path: Path, sample: RowSet, party: str, seed: int) -> None:
    """A party's own file: ids that all parties know the rows by, in an order that only this party has."""
    order = _mixed(len(sample), seed, party)
    rows = take(sample.parts[party], order)
    if isinstance(rows, DenseRows):
        raise AssertionError("a9a is sparse")
    matrix = to_scipy(rows)
    arrays: dict[str, Any] = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    arrays["ids"] = np.array([f"person-{number:05d}" for number in order])
    if party == PARTIES[0]:
        arrays["y"] = sample.labels[order].astype(np.int64)
    np.savez(path, format=np.array(b"csr"), shape=np.array(matrix.shape), **arrays)


def contenders() -> list[Contender]:
    """LR and NN as in the paper: batch 100, two layers with 64 hidden units."""
    return [
        _contender("LR", 20, model_settings("linear", optimizer="sgd", l2=3e-4)),
        _contender("NN", 40, model_settings("mlp", hidden=(64,), optimizer="sgd", l2=1e-3)),
    ]


def _contender(name: str, epochs: int, model: ModelSettings) -> Contender:
    training = TrainingSettings(epochs=epochs, batch_size=100, learning_rate=0.5)
    return Contender(name, training, dict.fromkeys(PARTIES, model))
