"""All benchmarks by name. A benchmark's module is imported only when it is run, as some need an extra."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Progress, Report
from fdml.errors import SettingsError
from fdml.extras import EXTRAS, missing


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark's `run` stands, and which of the command's options it takes."""

    module: str
    options: tuple[str, ...] = ()


BENCHMARKS: dict[str, Benchmark] = {
    "kernels": Benchmark("benchmarks.kernels"),
    "exchange": Benchmark("benchmarks.exchange"),
    "blind": Benchmark("benchmarks.blind", ("rounds",)),
    "align": Benchmark("benchmarks.align"),
    "scale": Benchmark("benchmarks.scale"),
    "align-large": Benchmark("benchmarks.align_large", ("rows", "only")),
    "blocks": Benchmark("benchmarks.blocks", ("rows",)),
    "reader": Benchmark("benchmarks.reader", ("gigabytes", "workers")),
    "kill": Benchmark("benchmarks.kill", ("first", "seeds")),
    "kill-mesh": Benchmark("benchmarks.kill_mesh", ("first", "seeds")),
    "mesh": Benchmark("benchmarks.mesh", ("rounds",)),
    "protocol": Benchmark("benchmarks.protocol", ("first", "seeds")),
    "load": Benchmark("benchmarks.load", ("rounds",)),
    "standing": Benchmark("benchmarks.standing", ("rounds",)),
    "watching": Benchmark("benchmarks.watching", ("rounds",)),
    "serving": Benchmark("benchmarks.serving", ("rows", "rounds")),
    "kill-batch": Benchmark("benchmarks.kill_batch", ("rows", "first", "seeds")),
    "noise": Benchmark("benchmarks.noise", ("seeds", "plot")),
    "neighbours": Benchmark("benchmarks.neighbours", ("seeds",)),
    "regret": Benchmark("benchmarks.regret", ("seeds", "plot")),
    "network": Benchmark("benchmarks.network", ("rows",)),
    "speed": Benchmark("benchmarks.speed", ("rows",)),
    "absence": Benchmark("benchmarks.absence", ("seeds",)),
    "unsure": Benchmark("benchmarks.unsure", ("seeds",)),
    "app-store": Benchmark("benchmarks.app_store", ("rows", "plot")),
    "a9a": Benchmark("benchmarks.a9a"),
    "bits": Benchmark("benchmarks.bits", ("rows", "seeds")),
    "growth": Benchmark("benchmarks.scaling", ("rows",)),
    "defaults": Benchmark("benchmarks.defaults", ("seeds", "rows", "only")),
    "trees": Benchmark("benchmarks.trees", ("seeds", "only")),
    "default-times": Benchmark("benchmarks.default_times", ("rows", "rounds", "only")),
    "models": Benchmark("benchmarks.models", ("seeds", "rows", "only")),
    "shard-times": Benchmark("benchmarks.shard_times", ("rows",)),
    "shards": Benchmark("benchmarks.shards", ("seeds",)),
    "against": Benchmark("benchmarks.against", ("old", "rounds", "rows", "only")),
}


def run_benchmark(name: str, progress: Progress, **options: float | str | Path | None) -> Report:
    """Run a benchmark by its name; `progress` gets a few words on how far it is. None leaves an option alone."""
    if name not in BENCHMARKS:
        raise SettingsError(f"there is no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}")
    chosen = {option: value for option, value in options.items() if value is not None}
    for option in chosen:
        if option not in BENCHMARKS[name].options:
            raise SettingsError(f"benchmark {name!r} takes no --{option}; leave it out")
    try:
        found = importlib.import_module(BENCHMARKS[name].module)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise missing(error.name, "this benchmark") from None
    report: Report = found.run(progress, **chosen)
    return report
