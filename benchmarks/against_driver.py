"""The workloads of `against`, in the tree that PYTHONPATH names: a line with a name in, a line with its seconds out.

It runs in trees of several ages, so it is a script that asks each tree for its own benchmarks by their names there.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_EXCHANGE = {"1": 1, "16": 16, "64": 64}
"""Batches per block."""
_SPLIT = "20/20/20"
_SPEED_BLOCK = 256
_SPEED_EPOCHS = 4
_KINDS = {"LR": "linear", "NN": "mlp"}


def workloads(folder: Path, exchange_rows: int, speed_rows: int) -> dict[str, Callable[[], float]]:
    """By name: each does its work once and gives its seconds."""
    return _exchange(folder, exchange_rows) | _speed(folder, speed_rows)


def _exchange(folder: Path, rows: int) -> dict[str, Callable[[], float]]:
    module = _module("exchange")
    module._ROWS = rows
    X, labels = module._data()
    work: dict[str, Callable[[], float]] = {}
    for name, batches in _EXCHANGE.items():
        training = module._FEW.model_copy(update={"batches_per_block": batches, "epochs": 3 if batches < 16 else 6})
        work[f"exchange, in process, {name} batches per block"] = partial(module._in_process, X, labels, training)
        work[f"exchange, gRPC with TLS, {name} batches per block"] = partial(
            module._over_grpc, folder, X, labels, training
        )
    return work


def _speed(folder: Path, rows: int) -> dict[str, Callable[[], float]]:
    module, run = _module("speed"), _module("sparse_run")
    data = module.make_data(rows, _SPLIT)
    pooled = module.pooled_sample(data)
    pooled_for = getattr(module, "pooled_for", None) or module.solo_for
    work: dict[str, Callable[[], float]] = {}
    for name, kind in _KINDS.items():
        home = folder / f"speed-{kind}"
        run.write_run(home, data, kind, epochs=_SPEED_EPOCHS, batches_per_block=_SPEED_BLOCK)
        work[f"speed, {name} pooled"] = pooled_for(pooled, kind).epoch
        work[f"speed, {name} joint"] = partial(module.joint_pass, home)
    return work


def _module(name: str) -> Any:
    """A benchmark of this tree; before the benchmarks left the package they were in fdml.bench."""
    found = importlib.util.find_spec(f"benchmarks.{name}")
    return importlib.import_module(f"benchmarks.{name}" if found is not None else f"fdml.bench.{name}")


def main() -> None:
    """Answer until the input ends. The first line out lists the workloads."""
    answers, sys.stdout = sys.stdout, sys.stderr
    exchange_rows, speed_rows = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="fdml-against-") as folder:
        work = workloads(Path(folder), exchange_rows, speed_rows)
        for answer in _answers(work):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def _answers(work: dict[str, Callable[[], float]]) -> Any:
    yield list(work)
    for line in sys.stdin:
        yield work[line.strip()]()


if __name__ == "__main__":
    main()
