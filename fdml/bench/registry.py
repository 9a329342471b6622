"""All benchmarks by name. A benchmark's module is imported only when it is run, as some need an extra."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

from fdml.bench.measure import Progress, Report
from fdml.errors import MissingExtra, SettingsError


def _run(module: str, progress: Progress) -> Report:
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("this benchmark needs PyTorch; install it with `pip install fdml[torch]`") from None
    report: Report = found.run(progress)
    return report


BENCHMARKS: dict[str, Callable[[Progress], Report]] = {
    "kernels": partial(_run, "fdml.bench.kernels"),
}


def run_benchmark(name: str, progress: Progress) -> Report:
    """Run a benchmark by its name; `progress` is told in a few words how far it is."""
    if name not in BENCHMARKS:
        raise SettingsError(f"there is no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name](progress)
