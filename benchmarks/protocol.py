"""Does the protocol keep its promises whatever happens? Many seeds of the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report
from fdml.errors import InvariantBroken
from simulator.run import run_seed

_TWICE_EVERY, _PROGRESS_EVERY = 10, 500


def run(progress: Progress, first: int = 0, seeds: int = 10_000) -> Report:
    """Run `seeds` seeds from `first` on; the first that breaks a promise ends it."""
    of_machine, made_by = machine(), commit()
    counts: list[Counter[str]] = []
    for seed in range(first, first + seeds):
        outcome = run_seed(seed)
        if (seed % _TWICE_EVERY == 0 or seeds == 1) and run_seed(seed).trace_hash != outcome.trace_hash:
            raise InvariantBroken(f"seed {seed} went two different ways; something is not drawn from the seed")
        counts.append(outcome.counts)
        if len(counts) % _PROGRESS_EVERY == 0:
            progress(f"{len(counts):,} of {seeds:,} seeds, no promise broken")
    question = f"Does the protocol keep its promises whatever happens? In all seeds from {first} to {seed}, yes."
    return Report("protocol", question, _rows(counts), {}, of_machine, made_by)


def _rows(counts: Sequence[Counter[str]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"contender": "seeds", "median": len(counts), "min": len(counts), "max": len(counts), "unit": "in all"}
    ]
    for kind in sorted({kind for each in counts for kind in each}):
        figures = [each[kind] for each in counts]
        spread = {"median": median(figures), "min": min(figures), "max": max(figures)}
        rows.append({"contender": kind, **spread, "unit": f"per seed, {sum(figures):,} in all", "total": sum(figures)})
    return rows
