"""How many rows must be asked for, if the label party answers alone where it is sure?

a9a of two parties, every setting at its default. The label party's own part of the joint model is read by a scale and
an offset that fit 4,096 training rows, as `ask = "unsure"` reads it; rows inside the band have the joint score.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.absence import parts_of, trained_models
from benchmarks.bits import a9a_of
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from fdml.experiments.dataset import JointDataset
from fdml.models.calibration import calibrate
from fdml.models.metrics import mean_loss, metric
from fdml.serving.absence import SAMPLE
from fdml.serving.unsure import is_unsure
from fdml.settings.serving import ServingSettings

BANDS = ((0.0, 1.0), (0.02, 0.98), (0.05, 0.95), ServingSettings().band, (0.15, 0.85), (0.2, 0.8), (0.5, 0.5))
"""From asking for all rows to asking for none."""
_MOST_LOST, _MOST_ASKED = 0.001, 0.6
"""Of accuracy, and of the rows, at the default band."""


def run(progress: Progress, seeds: int = 3) -> Report:
    """Train with every seed, and answer the test rows with every band."""
    made_on, made_of = machine(), commit()
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(seeds):
        progress(f"seed {seed}")
        for name, figures in banded(a9a_of(2).shuffled(seed), seed).items():
            found.setdefault(name, []).append(figures)
    results = [
        row(f"band {name}, {what}", [each[what] for each in those], what)
        for name, those in found.items()
        for what in those[0]
    ]
    question = f"How good are answers of which only the unsure rows are asked for? a9a, two parties, {seeds} seeds"
    return Report("unsure", question, results, _ratios(found), made_on, made_of)


def banded(problem: JointDataset, seed: int) -> dict[str, dict[str, float]]:
    """By band: the share of test rows that is asked for, accuracy, AUC and loss of the answers."""
    models = trained_models(problem, seed, 0.0)
    train, test = parts_of(models, problem.train), parts_of(models, problem.test)
    some = problem.train.take(np.arange(min(SAMPLE, len(problem.train))))
    reading = calibrate(problem.loss, train[problem.label_party][: len(some)], some)
    alone, joint = reading.apply(test[problem.label_party]), sum(test.values())
    chance = 1.0 / (1.0 + np.exp(-alone[:, 0]))
    found = {}
    for low, high in BANDS:
        asked = is_unsure(chance, (low, high))
        score = np.where(asked[:, None], joint, alone)
        found[f"{low:g} to {high:g}"] = {
            "asked": float(asked.mean()),
            "accuracy": float(np.mean((score[:, 0] >= 0.0) == problem.test.labels)),
            "AUC": metric("binary", score, problem.test),
            "loss": mean_loss(problem.loss, score, problem.test),
        }
    return found


def _ratios(found: Mapping[str, list[dict[str, float]]]) -> dict[str, dict[str, Any]]:
    low, high = ServingSettings().band
    every, some = found["0 to 1"], found[f"{low:g} to {high:g}"]
    lost = [before["accuracy"] - each["accuracy"] for before, each in zip(every, some, strict=True)]
    asked = [each["asked"] for each in some]
    return {
        "default band: accuracy lost": {**spread(lost), "mean": mean(lost), "at_most": _MOST_LOST},
        "default band: rows asked for": {**spread(asked), "mean": mean(asked), "at_most": _MOST_ASKED},
    }
