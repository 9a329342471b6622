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
from functools import cache, partial
from pathlib import Path
from typing import Any

_EXCHANGE = {"1": 1, "16": 16, "64": 64}
"""Batches per block."""
_SPLIT = "20/20/20"
_SPEED_BLOCK = 256
_SPEED_EPOCHS = 4
_KINDS = {"LR": "linear", "NN": "mlp"}


def workloads(folder: Path, exchange_rows: int, speed_rows: int) -> dict[str, Callable[[], float]]:
    """By name: each does its work once and gives its seconds; its data are made when it is first asked."""
    return _exchange(folder, exchange_rows) | _speed(folder, speed_rows)


def _exchange(folder: Path, rows: int) -> dict[str, Callable[[], float]]:
    module = _module("exchange")
    module._ROWS = rows
    data = cache(module._data)
    work: dict[str, Callable[[], float]] = {}
    for name, batches in _EXCHANGE.items():
        training = module._FEW.model_copy(update={"batches_per_block": batches, "epochs": 3 if batches < 16 else 6})
        work[f"exchange, in process, {name} batches per block"] = partial(_in_process, module, data, training)
        work[f"exchange, gRPC with TLS, {name} batches per block"] = partial(_over_grpc, module, folder, data, training)
    return work


def _in_process(module: Any, data: Callable[[], Any], training: Any) -> float:
    return float(module._in_process(*data(), training))


def _over_grpc(module: Any, folder: Path, data: Callable[[], Any], training: Any) -> float:
    return float(module._over_grpc(folder, *data(), training))


def _speed(folder: Path, rows: int) -> dict[str, Callable[[], float]]:
    module = _module("speed")
    data = cache(partial(module.make_data, rows, _SPLIT))
    work: dict[str, Callable[[], float]] = {}
    for name, kind in _KINDS.items():
        work[f"speed, {name} pooled"] = partial(_call, cache(partial(_pooled, module, data, kind)))
        work[f"speed, {name} joint"] = partial(_call, cache(partial(_joint, module, folder, data, kind)))
    return work


def _pooled(module: Any, data: Callable[[], Any], kind: str) -> Callable[[], float]:
    pooled_for = getattr(module, "pooled_for", None) or module.solo_for
    epoch: Callable[[], float] = pooled_for(module.pooled_sample(data()), kind).epoch
    return epoch


def _joint(module: Any, folder: Path, data: Callable[[], Any], kind: str) -> Callable[[], float]:
    home = folder / f"speed-{kind}"
    _module("sparse_run").write_run(home, data(), kind, epochs=_SPEED_EPOCHS, batches_per_block=_SPEED_BLOCK)
    return partial(module.joint_pass, home)


def _call(made: Callable[[], Callable[[], float]]) -> float:
    return made()()


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
