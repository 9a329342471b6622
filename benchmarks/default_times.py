"""How much time do the default settings cost, beside the best ones that can be set by hand?

A server and three parties as processes over mutual TLS train with no setting changed,
and with candidates set by hand, which take as many epochs. A candidate counts if its
test AUC is at most .001 below that of the defaults. Seconds are of the whole training,
as the label party has them. All take turns.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster import history_of, running
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.sparse_run import Data
from benchmarks.speed import make_data
from fdml.errors import SettingsError
from fdml.federation.scaffold import write_keys
from fdml.protocol.agreed_training import agreed_training
from fdml.settings import TrainingSettings

AT_MOST = 1.3
"""Times the best candidate's seconds that the defaults may take."""
SAME = 0.001
"""AUC that a candidate may lose."""
DEFAULTS = "defaults"
HELD_OUT = 0.1
MODELS = {"LR": "linear", "NN": "mlp"}
_SPLIT = "20/20/20"
_LARGE = 512
"""Rows of a large batch."""
_DEADLINE = 1800.0
"""Seconds that one run may take."""


@dataclass(frozen=True)
class Candidate:
    """A way to train: what run.toml has under [training], and party.toml under [model] beside the kind."""

    name: str
    training: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """One training."""

    seconds: float
    auc: float


def run(progress: Progress, rows: int = 30_000, rounds: int = 3, only: str = "") -> Report:
    """Let the defaults and the candidates take turns, for both models or `only` the one of this name."""
    made_on, made_of = machine(), commit()
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    progress(f"making {rows:,} rows")
    data = make_data(rows, _SPLIT)
    for model in chosen_models(only):
        with tempfile.TemporaryDirectory(prefix="fdml-default-times-") as folder:
            found = in_turns(Path(folder), data, model, rounds, progress)
        results += list(_rows(model, found))
        ratios |= times_of_best(model, found)
    question = (
        f"How long does a training with no setting changed take, beside the fastest of those set by hand that lose at "
        f"most {SAME:g} of AUC? {rows:,} rows x 60 non-zeros, 3 parties and a server over TLS with durability on."
    )
    return Report("default-times", question, results, ratios, made_on, made_of)


def chosen_models(only: str) -> list[str]:
    """All models, or the one of this name."""
    if only and only not in MODELS:
        raise SettingsError(f"there is no model {only!r} here; --only takes {' or '.join(MODELS)}")
    return [only] if only else list(MODELS)


def candidates(rows: int, parties: int) -> Iterator[Candidate]:
    """The defaults first, then what may be faster with as many epochs, for this number of training rows."""
    usual = agreed_training(TrainingSettings(), rows, parties)
    yield Candidate(DEFAULTS)
    yield Candidate("16 bits", {"value_bits": 16})
    third = partial(_batches, rows, 3)
    yield Candidate("3 exchanges an epoch", {"batches_per_block": third(usual.batch_size)})
    yield Candidate("16 bits, 3 exchanges", {"value_bits": 16, "batches_per_block": third(usual.batch_size)})
    sizes = {"epochs": usual.epochs, "value_bits": 16}
    large = {**sizes, "batch_size": _LARGE, "batches_per_block": third(_LARGE)}
    yield Candidate(f"16 bits, 3 exchanges, batches of {_LARGE}", large)
    hundred = {**sizes, "batch_size": 100, "batches_per_block": third(100), "learning_rate": 0.5}
    yield Candidate("16 bits, 3 exchanges, plain SGD", hundred, {"optimizer": "sgd", "l2": 1e-5})


def _batches(rows: int, exchanges: int, batch_size: int) -> int:
    """Of a block, where an epoch has so many exchanges."""
    return max(-(-rows // (batch_size * exchanges)), 1)


def in_turns(folder: Path, data: Data, model: str, rounds: int, progress: Progress) -> dict[str, list[Outcome]]:
    """The outcomes of every candidate, round by round."""
    names = [f"p{number}" for number in range(len(data.parts))]
    share = round(len(data.labels) * (1.0 - HELD_OUT))
    chosen = list(candidates(share, len(names)))
    _write_data(folder, data, names)
    found: dict[str, list[Outcome]] = {each.name: [] for each in chosen}
    for turn in range(rounds):
        for each in chosen:
            progress(f"{model}, {each.name}, round {turn + 1} of {rounds}")
            home = folder / "run"
            write_home(home, folder, names, MODELS[model], each)
            found[each.name].append(train(home, names))
            shutil.rmtree(home)
    return found


def _write_data(folder: Path, data: Data, names: Sequence[str]) -> None:
    for name, part in zip(names, data.parts, strict=True):
        arrays: dict[str, Any] = {"indptr": part.indptr, "indices": part.indices, "data": part.data}
        arrays |= {"format": np.array(b"csr"), "shape": np.array(part.shape)}
        if name == names[0]:
            arrays["y"] = data.labels
        np.savez(folder / f"{name}.npz", **arrays)


def write_home(home: Path, folder: Path, names: Sequence[str], kind: str, candidate: Candidate) -> None:
    """A run of a candidate over the data that is in `folder`, rows matched by position."""
    home.mkdir()
    (home / "federation.toml").write_text(
        f'name = "default-times"\nserver = "127.0.0.1:0"\nparties = {list(names)!r}\n'
    )
    (home / "run.toml").write_text(
        f'name = "first"\nlabel_party = "{names[0]}"\n'
        f"[training]\n{_toml(candidate.training)}\n[evaluation]\nholdout = {HELD_OUT}\n"
    )
    write_keys(home, "default-times", names)
    for name in names:
        (home / name / "party.toml").write_text(
            f'party = "{name}"\nfederation = "../federation.toml"\n[align]\nmax_rows = {10**9}\n'
            f'[data]\npath = "{folder / name}.npz"\n[model]\n{_toml({"kind": kind, **candidate.model})}\n'
        )


def _toml(settings: Mapping[str, Any]) -> str:
    return "\n".join(f"{name} = {value!r}" for name, value in settings.items())


def train(home: Path, names: Sequence[str]) -> Outcome:
    """One run of processes, from its start to its end."""
    with running(home, names, _DEADLINE) as cluster:
        cluster.finish()
    history = history_of(home)
    last = history[max(history)]
    return Outcome(last.seconds or 0.0, last.test_metric or 0.0)


def _rows(model: str, found: Mapping[str, Sequence[Outcome]]) -> Iterator[dict[str, Any]]:
    for name, outcomes in found.items():
        yield row(f"{model}, {name}: training", [each.seconds for each in outcomes], "s")
        yield row(f"{model}, {name}: AUC", [each.auc for each in outcomes], "test AUC")


def times_of_best(model: str, found: Mapping[str, Sequence[Outcome]]) -> dict[str, dict[str, Any]]:
    """How many times the seconds of the fastest candidate that is as good the defaults take.

    The fastest is the one with the smallest ratio of medians; the spread is over the rounds.
    """
    usual = found[DEFAULTS]
    needed = _median(usual, "auc") - SAME
    good = {name: each for name, each in found.items() if _median(each, "auc") >= needed}
    best = min(good, key=lambda name: _median(good[name], "seconds"))
    times = [own.seconds / other.seconds for own, other in zip(usual, good[best], strict=True)]
    return {f"{model}: defaults/best set by hand ({best}), time": spread(times) | {"at_most": AT_MOST}}


def _median(outcomes: Sequence[Outcome], what: str) -> float:
    return float(np.median([getattr(each, what) for each in outcomes]))
