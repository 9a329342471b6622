"""How long does a step in shards take, by who works? `python -m benchmarks shard-times`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, Timing, Work, measure, ratio, row
from benchmarks.ray_cluster import ray_node
from fdml.cluster.learner import ShardedLearner
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.shard_job import ShardSetup
from fdml.cluster.sharding import sharded_learner
from fdml.data.rows import as_rows
from fdml.models.kind import ModelSpec
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings, resolved_model
from fdml.models.signals import BlockUpdate, Scores

_ROWS, _BATCH, _FEATURES = 1_000_000, 512, 50
_BLOCKS = (1_024, 8_192, 65_536)
"""Rows of a step that is timed."""
_MACHINES = (2, 4, 8)
_COMPARED = (
    ("2 threads", "1 threads"),
    ("2 processes", "2 threads"),
    ("2 ray", "2 processes"),
    ("1 ray", "1 processes"),
)
_ROUNDS = 15


def run(progress: Progress, rows: int = _ROWS) -> Report:
    """The time of a step of an mlp with two shards, by who works."""
    made_on, made_of = machine(), commit()
    lines, ratios = _times(rows, progress)
    question = f"How long does a step of an mlp over {rows:,} rows of {_FEATURES} features take in two shards?"
    return Report("shard-times", question, lines, ratios, made_on, made_of)


def timed_learner(
    rows: int, shards: int, workers: WorkersSettings
) -> tuple[ShardedLearner, Callable[[int], Callable[[], None]]]:
    """An mlp over random dense rows, ready, and a step of it over so many rows."""
    chance = np.random.default_rng(1)
    features = as_rows(chance.normal(size=(rows, _FEATURES)).astype(np.float32))
    settings = resolved_model(model_settings("mlp", shards=shards), rows)
    setup = ShardSetup(settings, ModelSpec(inputs=_FEATURES, width=1, bias=True, key=(1, "shards")), "logistic", 2)
    learner = sharded_learner(
        setup, build_model(settings, setup.spec), features, workers, party="timed", held_out=None, threads=1
    )
    learner.warm_up(objective_for("logistic", 2))

    def step_of(size: int) -> Callable[[], None]:
        block, signal = _given(min(size, rows), np.random.default_rng(2))
        return lambda: learner.update(block, signal)

    return learner, step_of


def _given(size: int, chance: np.random.Generator) -> tuple[BlockUpdate, Scores]:
    bounds = np.minimum(np.arange(0, size + _BATCH, _BATCH), size)
    bounds = bounds[: int(np.argmax(bounds == size)) + 1]
    block = BlockUpdate(0, chance.permutation(size), bounds, np.full(len(bounds) - 1, 1e-3))
    nothing = np.zeros((size, 1), np.float32)
    labels = (chance.random(size) < 0.5).astype(np.float64)
    return block, Scores(nothing, nothing, labels, np.ones(size), 2.0, objective_for("logistic", 2))


def _times(rows: int, progress: Progress) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Seconds of a step of two shards by one and two threads, processes and actors of a Ray node on this machine."""
    with ExitStack() as held:
        address = held.enter_context(ray_node(3))
        made = {
            f"{count} {kind}": timed_learner(
                rows, 2, WorkersSettings(kind=kind, count=count, address=address if kind == "ray" else None)
            )
            for kind in ("threads", "processes", "ray")
            for count in (1, 2)
        }
        for learner, _ in made.values():
            held.callback(learner.close)
        lines: list[dict[str, Any]] = []
        ratios: dict[str, dict[str, Any]] = {}
        for size in _BLOCKS:
            times = measure(
                {name: _work_of(step_of(size)) for name, (_, step_of) in made.items()}, _ROUNDS, progress=progress
            )
            lines += [each.row("ms per step", 1e3, contender=f"{size} rows, {name}") for name, each in times.items()]
            lines.append(_overhead(size, times))
            for of, to in _COMPARED:
                found = ratio(times[of], times[to])
                name = f"a step of {size} rows, {of} over {to}"
                ratios[name] = {"median": found.median, "min": found.min, "max": found.max}
    return lines, ratios


def _work_of(step: Callable[[], None]) -> Work:
    def work() -> float:
        step()
        return 1.0

    return work


def _overhead(size: int, times: Mapping[str, Timing]) -> dict[str, Any]:
    """What a task costs by an actor beyond a process; and by model how many times as fast a step is on S machines.

    There a shard takes a process its part of the time on one core, and a task's cost is added once: all travel at once.
    """
    more = [(ray - own) / 2 for ray, own in zip(times["1 ray"].rounds, times["1 processes"].rounds, strict=True)]
    line = row(f"{size} rows, a task by Ray beyond a process", [1e3 * each for each in more], "ms per task")
    alone, task = times["1 processes"].seconds.median, float(np.median(more))
    return {**line, "modelled_gain": {str(each): alone / (alone / each + task) for each in _MACHINES}}
