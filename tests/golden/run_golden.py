"""Run the golden runs and write what they end with.

Everything goes through the `fdml` command, its TOML files and the public
estimators, so that the same runs can be made before and after a change of
anything inside. From the repository's folder:

    python -m tests.golden.run_golden --write tests/golden/golden.json

runs the fdml that Python imports, and writes the results. Name some runs to run only these.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped]
from numpy.typing import NDArray

import fdml
from tests.golden.folders import write_run
from tests.golden.layout import CURRENT, FileLayout
from tests.golden.runs import PARTIES, RUN_NAME, RUNS, CompareRun, DemoRun, EstimatorRun, ProcessRun, Run

Result = dict[str, Any]
"""`hashes` and `figures` are the same in every run; figures in `about` lie `within` so much of each other."""
GOLDEN = Path(__file__).with_name("golden.json")
_MODULES = Path(__file__).with_name("modules")
_SOURCE = Path(fdml.__file__).parent.parent
_DEADLINE = 240.0
_STOP_SECONDS = 20.0


class Workshop:
    """A folder to run golden runs in, each in a folder of its own."""

    def __init__(self, home: Path, layout: FileLayout) -> None:
        self._home = home
        self._layout = layout

    def result(self, run: Run) -> Result:
        """What a run ends with."""
        match run:
            case ProcessRun():
                return self._of_processes(run)
            case CompareRun():
                return self._of_comparison(run)
            case EstimatorRun():
                return {"hashes": {RUN_NAME: _predictions(run, self._layout)}}
            case DemoRun():
                return self._of_demo(run)

    def _of_processes(self, run: ProcessRun) -> Result:
        home = self._home / run.name
        call_fdml("simulate", write_run(home, run, self._keys, self._layout))
        history = json.loads((home / next(iter(run.models)) / self._layout.history).read_text(encoding="utf-8"))
        figures = _without_seconds(history[-1])
        if run.within:
            return {"about": figures, "within": run.within}
        hashes = {party: hashes_of(model_arrays(home / party, self._layout)) for party in run.models}
        return {"hashes": hashes, "figures": figures}

    def _of_comparison(self, run: CompareRun) -> Result:
        home = self._home / run.name
        if run.of is not None:
            source = write_run(home, run.of, self._keys, self._layout)
        else:
            home.mkdir()
            source = home / "table.csv"
            source.write_text(run.file, encoding="utf-8")
        return {"figures": _compared(home, "compare", source, *run.words)}

    def _of_demo(self, run: DemoRun) -> Result:
        home = self._home / run.name
        home.mkdir()
        found = _compared(home, "demo", "--seeds", 1)
        joint = {name: found.pop(name) for name in list(found) if name.endswith(" joint")}
        return {"figures": found, "about": joint, "within": run.within}

    @cached_property
    def _keys(self) -> Path:
        """A run of all parties that `fdml new` made; its certificates serve every golden run."""
        folder = self._home / "keys" / RUN_NAME
        call_fdml("new", folder, "--parties", ",".join(PARTIES))
        return folder


def call_fdml(*words: object) -> None:
    """Run an `fdml` command: of the fdml that Python imports here, wherever the working folder is."""
    paths = [str(_SOURCE), str(_MODULES), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "fdml", *map(str, words)],
            cwd=empty,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            code = process.wait(_DEADLINE)
        finally:
            _stop(process)
        said.seek(0)
        if code != 0:
            raise RuntimeError(f"fdml {' '.join(map(str, words))} ended with {code}: {said.read()}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a command that still runs, with a signal by which it ends its own processes too."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait(_STOP_SECONDS)


def model_arrays(folder: Path, layout: FileLayout) -> dict[str, NDArray[Any]]:
    """The arrays of a party's trained model, by their names without the party's."""
    with np.load(folder / layout.model, allow_pickle=False) as archive:
        arrays = {layout.arrays.get(name, name): archive[name] for name in archive}
    return {name: array for name, array in arrays.items() if array.dtype.kind != "U"}


def hashes_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """A hash of every array's name, type, shape and bytes; empty arrays are left out."""
    return {name: _hash(name, array) for name, array in sorted(arrays.items()) if array.size}


def _hash(name: str, array: NDArray[Any]) -> str:
    digest = hashlib.blake2b(f"{name} {array.dtype.str} {array.shape}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _predictions(run: EstimatorRun, layout: FileLayout) -> dict[str, str]:
    """Hashes of all that a fitted estimator predicts of its own training rows."""
    parameters = dict(layout.named(run.parameters))
    if run.torch_at:
        from tests.golden.modules.golden_net import net  # noqa: PLC0415 (torch is an extra)

        parameters["model"] = [net if at in run.torch_at else each for at, each in enumerate(parameters["model"])]
    estimator = getattr(fdml, run.kind)(**parameters)
    for _ in range(run.fits):
        estimator.fit(run.X, run.y, sample_weight=run.weights)
    methods = [name for name in ("decision_function", "predict_proba", "predict") if hasattr(estimator, name)]
    return hashes_of({name: getattr(estimator, name)(run.X) for name in methods})


def _compared(home: Path, *words: object) -> dict[str, Any]:
    """The table that a command writes, by model and scheme."""
    call_fdml(*words, "--json", home / "figures.json")
    rows = json.loads((home / "figures.json").read_text(encoding="utf-8"))["rows"]
    return {f"{row.pop('model')} {row.pop('scheme')}": _without_seconds(row) for row in rows}


_NOT_COMPARED = ("seconds", "party", "figures", "chosen", "convergence", "compared", "gains", "earlier", "reliability")
"""Times, names, and what came after the golden results and follows from the models, whose hashes are compared."""


def _without_seconds(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if name not in _NOT_COMPARED}


def machine() -> dict[str, str]:
    """What the last bits of a result depend on besides fdml."""
    packages = {name: version(name) for name in ("numpy", "numba", "scipy", "torch", "pyarrow")}
    return {"cpu": get_host_cpu_name(), "libc": " ".join(platform.libc_ver()), **packages}


def main() -> None:
    """Run, and write or show the results."""
    parser = argparse.ArgumentParser(description="Run the golden runs.")
    parser.add_argument("runs", nargs="*", help=f"some of: {', '.join(RUNS)}")
    parser.add_argument("--write", type=Path, help="write the results to this file, else to standard output")
    parser.add_argument("--keep", type=Path, help="run in this new folder and leave it there")
    asked = parser.parse_args()
    layout = CURRENT
    results = {}
    with tempfile.TemporaryDirectory(prefix="golden-") as beside:
        workshop = Workshop(asked.keep or Path(beside), layout)
        for name in asked.runs or RUNS:
            began = time.monotonic()
            results[name] = workshop.result(RUNS[name])
            sys.stderr.write(f"{time.monotonic() - began:6.1f} s  {name}\n")
    commit = subprocess.run(["git", "-C", _SOURCE, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    text = json.dumps({"commit": commit.stdout.strip(), "machine": machine(), "runs": results}, indent=1) + "\n"
    if asked.write is None:
        sys.stdout.write(text)
    else:
        asked.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
