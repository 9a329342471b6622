"""All benchmarks by name. A benchmark's module is imported only when it is run, as some need an extra."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from fdml.bench.measure import Progress, Report
from fdml.errors import MissingExtra, SettingsError


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark's `run` stands, and which of the command's options it takes."""

    module: str
    options: tuple[str, ...] = ()


BENCHMARKS: dict[str, Benchmark] = {
    "kernels": Benchmark("fdml.bench.kernels"),
    "exchange": Benchmark("fdml.bench.exchange"),
    "align": Benchmark("fdml.bench.align"),
    "blocks": Benchmark("fdml.bench.blocks", ("rows",)),
    "kill": Benchmark("fdml.bench.kill", ("first", "seeds")),
    "protocol": Benchmark("fdml.bench.protocol", ("first", "seeds")),
    "noise": Benchmark("fdml.bench.noise", ("seeds", "plot")),
    "regret": Benchmark("fdml.bench.regret", ("seeds", "plot")),
    "network": Benchmark("fdml.bench.network", ("rows",)),
    "speed": Benchmark("fdml.bench.speed", ("rows",)),
    "app-store": Benchmark("fdml.bench.app_store", ("rows", "plot")),
    "a9a": Benchmark("fdml.bench.a9a"),
    "growth": Benchmark("fdml.bench.growth", ("rows",)),
}


def run_benchmark(name: str, progress: Progress, **options: int | Path | None) -> Report:
    """Run a benchmark by its name; `progress` is told in a few words how far it is. None leaves an option alone."""
    if name not in BENCHMARKS:
        raise SettingsError(f"there is no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}")
    chosen = {option: value for option, value in options.items() if value is not None}
    for option in chosen:
        if option not in BENCHMARKS[name].options:
            raise SettingsError(f"benchmark {name!r} takes no --{option}; leave it out")
    try:
        found = importlib.import_module(BENCHMARKS[name].module)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("this benchmark needs PyTorch; install it with `pip install fdml[torch]`") from None
    report: Report = found.run(progress, **chosen)
    return report
