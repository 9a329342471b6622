"""Is this commit as fast as an older one? The same workloads in both trees, alternating in one run.

Each tree is a checkout with benchmarks of its own, in a process that imports it.
Where memory lies makes one process up to a tenth faster than the next of the same
tree, so every round has new processes. Within a round the two take turns, workload
by workload, the one that begins changes, and the fastest of a few runs counts:
whatever else the machine does only makes a run slower.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from fdml.errors import FdmlError, SettingsError

BAR = 1.03
"""This tree may take so many times as long as the older one."""
_DRIVER = Path(__file__).with_name("against_driver.py")
_OWN = Path(__file__).parents[1]
_EXCHANGE_ROWS = 100_000
_SPEED_ROWS = 200_000
_LEAST_ROWS = 2_000
_REPEATS = 5
"""Runs of a workload in a round, after one that does not count."""


class Tree:
    """A checkout whose workloads are run in a process of their own."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self._folder = folder
        self._process = process
        self.names: Sequence[str] = self._read()

    def seconds(self, name: str) -> float:
        """Run one workload."""
        _pipe(self._process.stdin).write(f"{name}\n")
        _pipe(self._process.stdin).flush()
        return float(self._read())

    def _read(self) -> Any:
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise FdmlError(
                f"the workloads in {str(self._folder)!r} failed; their own message is above; see that it is a checkout "
                f"of fdml with the benchmarks exchange and speed"
            )
        return json.loads(line)


@contextmanager
def opened(folder: Path, cache: Path, sizes: Sequence[int]) -> Iterator[Tree]:
    """The tree in a folder; compiled kernels go to `cache`, as the folder must stay as it is."""
    cache.mkdir(exist_ok=True)
    path = str(folder.resolve())
    env = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(_DRIVER), *map(str, sizes)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, cwd=cache, **pipes) as process:  # elsewhere, so as to import no other tree
        try:
            yield Tree(folder, process)
        finally:
            process.kill()


def run(
    progress: Progress, old: Path | None = None, rounds: int = 5, rows: int = _SPEED_ROWS, only: str = ""
) -> Report:
    """Alternate the checkout in `old` and this one, in the workloads that have `only` in their names."""
    if old is None or not (old / "fdml" / "__init__.py").is_file():
        raise SettingsError(
            f"{str(old)!r} holds no checkout of fdml; give its folder: `python -m benchmarks against DIR`"
        )
    found, sizes = machine(), (max(_LEAST_ROWS, min(rows, _EXCHANGE_ROWS)), rows)
    with tempfile.TemporaryDirectory(prefix="fdml-against-") as cache:
        seconds = alternate({"old": old, "new": _OWN}, Path(cache), sizes, rounds, progress, only)
    if not seconds:
        raise SettingsError(f"no workload of both checkouts has {only!r} in its name; leave --only out to see all")
    question = (
        f"How many times as long does this commit take as {commit(old / 'fdml')}? {rounds} rounds, each with new "
        f"processes, the two in turns, the fastest of {_REPEATS} runs; "
        f"exchange with {sizes[0]:,} rows of 3 parties, speed with {rows:,} rows x 60 non-zeros."
    )
    return Report("against", question, _rows(seconds), ratios(seconds), found, commit())


def alternate(
    folders: Mapping[str, Path], cache: Path, sizes: Sequence[int], rounds: int, progress: Progress, only: str = ""
) -> dict[str, dict[str, list[float]]]:
    """By workload and tree: the fastest run of each round."""
    seconds: dict[str, dict[str, list[float]]] = {}
    for turn in range(rounds):
        progress(f"round {turn + 1} of {rounds}")
        with ExitStack() as stack:
            trees = {name: stack.enter_context(opened(folder, cache / name, sizes)) for name, folder in folders.items()}
            for name in [each for each in trees["old"].names if each in trees["new"].names and only in each]:
                for tree, spent in fastest(trees, name).items():
                    seconds.setdefault(name, {each: [] for each in trees})[tree].append(spent)
    return seconds


def fastest(trees: Mapping[str, Tree], name: str) -> dict[str, float]:
    """By tree: the seconds of its fastest run of one workload; the trees take turns."""
    spent: dict[str, list[float]] = {tree: [] for tree in trees}
    for turn in range(_REPEATS + 1):
        for tree in sorted(trees, reverse=bool(turn % 2)):
            spent[tree].append(trees[tree].seconds(name))
    return {tree: min(found[1:]) for tree, found in spent.items()}


def ratios(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[str, Any]]:
    """New over old, formed inside each round."""
    return {
        f"{name}: new/old time": spread([new / old for new, old in zip(found["new"], found["old"], strict=True)])
        | {"at_most": BAR}
        for name, found in seconds.items()
    }


def _rows(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> list[dict[str, Any]]:
    return [
        row(f"{name}, {tree}", figures, "seconds") for name, found in seconds.items() for tree, figures in found.items()
    ]


def _pipe(end: IO[str] | None) -> IO[str]:
    if end is None:
        raise FdmlError("a process was started without pipes")
    return end
