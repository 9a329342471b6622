"""A run of processes over sparse rows, set as large data should be: many batches per block, 16-bit predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.cluster import run_folder, server_state
from fdml.federation.run_folder import STATE
from fdml.federation.scaffold import write_keys
from fdml.party.checkpoint import CheckpointStore
from fdml.settings.choices import Task
from fdml.storage.disk import FolderDisk

HELD_OUT = 0.005
RATE = 0.1
L2 = 1e-5


@dataclass(frozen=True)
class Data:
    """One split: each party's rows, and the labels."""

    parts: Sequence[sp.csr_array]
    labels: NDArray[np.int64]


def write_run(home: Path, data: Data, kind: str, task: Task = "binary", **training: int) -> None:
    """A run of processes over this data, rows matched by position; `training` are its settings of that name."""
    names = [f"p{number}" for number in range(len(data.parts))]
    chosen = {"value_bits": 16, "batch_size": 100, "learning_rate": RATE} | training
    lines = "\n".join(f"{name} = {value}" for name, value in chosen.items())
    home.mkdir(parents=True)
    (home / "federation.toml").write_text(f'name = "speed"\nserver = "127.0.0.1:0"\nparties = {names!r}\n')
    (home / "run.toml").write_text(
        'name = "first"\nlabel_party = "p0"\n'
        f'task = "{task}"\n'
        f"[training]\n{lines}\n[evaluation]\nholdout = {HELD_OUT}\n"
    )
    write_keys(home, "speed", names)
    for number, (name, part) in enumerate(zip(names, data.parts, strict=True)):
        arrays: dict[str, Any] = {"indptr": part.indptr, "indices": part.indices, "data": part.data}
        arrays |= {"format": np.array(b"csr"), "shape": np.array(part.shape)}
        if number == 0:
            arrays["y"] = data.labels
        np.savez(home / name / "data.npz", **arrays)
        (home / name / "party.toml").write_text(
            f'party = "{name}"\nfederation = "../federation.toml"\n[align]\nmax_rows = {10**9}\n'
            f'[data]\npath = "data.npz"\n[model]\nkind = "{kind}"\noptimizer = "sgd"\nl2 = {L2}\n'
        )


def forget(home: Path, parties: Sequence[str]) -> None:
    """Keep the alignment and forget the training, at every side."""
    for party in parties:
        CheckpointStore(FolderDisk(run_folder(home, party) / STATE)).clear()
    server = FolderDisk(server_state(home))
    for name in ("journal", "snapshot.0", "snapshot.1"):
        server.remove(name)
