"""What do shards cost in quality? `python -m benchmarks shards`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.encoded import EncodedProblem
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.models import sets_of
from fdml.experiments.in_process import train_in_process
from fdml.models.metrics import metric
from fdml.party.plan import Plan
from fdml.settings import TrainingSettings

SETS = ("a9a", "NYC flights")
SHARDS: dict[str, tuple[int, ...]] = {"linear": (1, 4, 8), "mlp": (1, 2, 4, 8)}
AT_MOST = 0.0005
"""Test AUC that shards should lose."""


def run(progress: Progress, seeds: int = 3) -> Report:
    """The test AUC by shards."""
    made_on, made_of = machine(), commit()
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    for name in SETS:
        if name in sets_of():
            for kind, shards in SHARDS.items():
                lines, lost = _quality(name, kind, shards, seeds, progress)
                results += lines
                ratios |= lost
    question = f"What do shards cost in test AUC ({seeds} seeds, defaults)?"
    return Report("shards", question, results, ratios, made_on, made_of)


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
