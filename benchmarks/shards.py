"""What do shards cost in quality, and what do they bring in time? `python -m benchmarks shards`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.encoded import EncodedProblem
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, Work, measure, ratio, row, spread
from benchmarks.models import sets_of
from fdml.cluster.learner import ShardedLearner
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.shard_job import ShardSetup
from fdml.cluster.sharding import sharded_learner
from fdml.data.rows import as_rows
from fdml.experiments.in_process import train_in_process
from fdml.models.kind import ModelSpec
from fdml.models.metrics import metric
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings, resolved_model
from fdml.models.signals import BlockUpdate, Scores
from fdml.party.plan import Plan
from fdml.settings import TrainingSettings

SETS = ("a9a", "NYC flights")
SHARDS: dict[str, tuple[int, ...]] = {"linear": (1, 4, 8), "mlp": (1, 2, 4)}
AT_MOST = 0.0005
"""Test AUC that shards should lose."""
_ROWS, _BLOCK, _BATCH, _FEATURES = 1_000_000, 65_536, 512, 50
_ROUNDS = 5


def run(progress: Progress, seeds: int = 3, rows: int = _ROWS) -> Report:
    """The test AUC by shards, and the seconds of a step of an mlp by who works."""
    made_on, made_of = machine(), commit()
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    for name in SETS:
        if name in sets_of():
            for kind, shards in SHARDS.items():
                lines, lost = _quality(name, kind, shards, seeds, progress)
                results += lines
                ratios |= lost
    timed, found = _times(rows, progress)
    question = f"What do shards cost in test AUC ({seeds} seeds, defaults), and what do they bring in time?"
    return Report("shards", question, results + timed, ratios | found, made_on, made_of)


def _quality(
    name: str, kind: str, shards: Sequence[int], seeds: int, progress: Progress
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    found: dict[int, list[float]] = {each: [] for each in shards}
    for seed in range(seeds):
        problem = sets_of()[name](seed)
        for each in shards:
            found[each].append(_auc(problem, kind, each, seed))
            progress(f"{name}, {kind}, {each} shards, seed {seed}: {found[each][-1]:.4f}")
    lines = [row(f"{name}, {kind}, S = {each}", figures, "test AUC") for each, figures in found.items()]
    lost = {
        f"{name}, {kind}: AUC lost by S = {each}": {
            **spread([one - other for one, other in zip(found[1], found[each], strict=True)]),
            "at_most": AT_MOST,
        }
        for each in shards
        if each > 1
    }
    return lines, lost


def _auc(problem: EncodedProblem, kind: str, shards: int, seed: int) -> float:
    whole = problem.rows_for(kind)
    models = {name: problem.model(kind, name, shards=shards) for name in whole.train.parts}
    plan = Plan(TrainingSettings(seed=seed), models, whole.label_party, whole.loss, whole.encoding.class_count)
    score = train_in_process(plan, whole.train).score(whole.test.parts)
    return float(metric(whole.encoding.task, score, whole.test, whole.loss) or np.nan)


def timed_learner(rows: int, shards: int, workers: WorkersSettings) -> tuple[ShardedLearner, Callable[[], None]]:
    """An mlp over random dense rows, ready, and a step of it."""
    chance = np.random.default_rng(1)
    features = as_rows(chance.normal(size=(rows, _FEATURES)).astype(np.float32))
    settings = resolved_model(model_settings("mlp", shards=shards), rows)
    setup = ShardSetup(settings, ModelSpec(inputs=_FEATURES, width=1, bias=True, key=(1, "shards")), "logistic", 2)
    learner = sharded_learner(
        setup, build_model(settings, setup.spec), features, workers, party="timed", held_out=None, threads=1
    )
    objective = objective_for("logistic", 2)
    learner.warm_up(objective)
    size = min(_BLOCK, rows)
    bounds = np.minimum(np.arange(0, size + _BATCH, _BATCH), size)
    bounds = bounds[: int(np.argmax(bounds == size)) + 1]
    block = BlockUpdate(0, chance.permutation(size), bounds, np.full(len(bounds) - 1, 1e-3))
    nothing = np.zeros((size, 1), np.float32)
    labels = (chance.random(size) < 0.5).astype(np.float64)
    signal = Scores(nothing, nothing, labels, np.ones(size), 2.0, objective)
    return learner, lambda: learner.update(block, signal)


def _times(rows: int, progress: Progress) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Seconds of a step of 65,536 rows: two shards by one thread, two threads and two processes."""
    chosen = {
        "S = 2, one thread": WorkersSettings(count=1),
        "S = 2, two threads": WorkersSettings(count=2),
        "S = 2, two processes": WorkersSettings(kind="processes", count=2),
    }
    made = {name: timed_learner(rows, 2, workers) for name, workers in chosen.items()}

    def work_of(step: Callable[[], None]) -> Work:
        def work() -> float:
            step()
            return 1.0

        return work

    timings = measure({name: work_of(step) for name, (_, step) in made.items()}, _ROUNDS, progress=progress)
    for learner, _ in made.values():
        learner.close()
    first, threads, processes = timings
    ratios = {}
    for name, of, to in (
        ("two threads over one", threads, first),
        ("two processes over two threads", processes, threads),
    ):
        found = ratio(timings[of], timings[to])
        ratios[f"a step, {name}"] = {"median": found.median, "min": found.min, "max": found.max}
    return [each.row("s per step", 1.0) for each in timings.values()], ratios
