"""What is a joint model worth without one of its parties, and what does it cost to train it for that?

Census-Income of three parties, every setting at its default but `absence`. A score without a party is the sum of the
others' parts, read by a scale and an offset that fit 4,096 training rows, as `absent = "calibrated"` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.default_sets import all_sets
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from fdml.data.row_set import RowSet
from fdml.data.rows import row_count
from fdml.errors import FdmlError
from fdml.experiments.dataset import JointDataset
from fdml.experiments.in_process import train_in_process
from fdml.models.calibration import calibrate
from fdml.models.losses import Floats
from fdml.models.metrics import mean_loss, metric
from fdml.models.model import Model
from fdml.models.registry import model_settings
from fdml.models.row_pointers import predict_rows
from fdml.party.plan import Plan
from fdml.serving.absence import SAMPLE
from fdml.settings import TrainingSettings

CHANCES = (0.0, 0.1, 0.2, 0.3, 0.5)
_SET, _PARTY = "census-income", "employer"
_WORST, _MOST_LOST = 0.90, 0.001
"""AUC without the employer's party, and what may be lost with all parties, at `absence = 0.3`."""
_HELD_TO = 0.3


def run(progress: Progress, seeds: int = 3) -> Report:
    """Train with every chance of absence and every seed; score with all parties, and without each other one."""
    made_on, made_of = machine(), commit()
    sets = all_sets(0)
    if _SET not in sets:
        raise FdmlError(f"the data {_SET!r} is not installed; `fdml data {_SET}` says which package has it")
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(seeds):
        problem = sets[_SET](seed).shuffled(seed)
        for chance in CHANCES:
            progress(f"seed {seed}, absence {chance:g}")
            found.setdefault(f"absence {chance:g}", []).append(figures(problem, chance, seed))
        progress(f"seed {seed}, trained without {_PARTY}")
        found.setdefault("never had it", []).append(_never_had(problem, _PARTY, seed))
    results = [
        row(f"{who}, {name}", [each[name] for each in those], name.rsplit(" ", 1)[-1])
        for who, those in found.items()
        for name in those[0]
    ]
    question = (
        f"What is a score without a party worth, with and without absence in training? {_SET}, {seeds} seeds, test "
        f"rows; loss after scale and offset"
    )
    return Report("absence", question, results, _ratios(found), made_on, made_of)


def figures(problem: JointDataset, chance: float, seed: int) -> dict[str, float]:
    """AUC and loss of the test rows with all parties, and without each but the label party."""
    models = trained_models(problem, seed, chance)
    train, test = parts_of(models, problem.train), parts_of(models, problem.test)
    found = dict(_scored("all", sum(train.values()), sum(test.values()), problem))
    for party in models:
        if party != problem.label_party:
            others = [name for name in models if name != party]
            left, tested = sum(train[name] for name in others), sum(test[name] for name in others)
            found |= dict(_scored(f"without {party}", left, tested, problem))
    return found


def _never_had(problem: JointDataset, party: str, seed: int) -> dict[str, float]:
    """The bar for scores without a party: a model that was trained without it."""
    parts = [name for name in problem.train.parts if name != party]
    train, test = (
        RowSet({name: rows.parts[name] for name in parts}, rows.labels, rows.weights)
        for rows in (problem.train, problem.test)
    )
    smaller = JointDataset(problem.label_party, problem.encoding, problem.loss, train, test)
    models = trained_models(smaller, seed, 0.0)
    total, tested = sum(parts_of(models, train).values()), sum(parts_of(models, test).values())
    return dict(_scored(f"without {party}", total, tested, smaller))


def trained_models(problem: JointDataset, seed: int, chance: float) -> Mapping[str, Model]:
    """The linear models of all parties, trained in this process."""
    plan = Plan(
        TrainingSettings(seed=seed, absence=chance),
        dict.fromkeys(problem.train.parts, model_settings()),
        problem.label_party,
        problem.loss,
        problem.encoding.class_count,
    )
    return train_in_process(plan, problem.train).models


def parts_of(models: Mapping[str, Model], rows: RowSet) -> dict[str, Floats]:
    """By party, its local predictions of all rows."""
    return {
        name: predict_rows(model, rows.parts[name], 0, row_count(rows.parts[name])).astype(np.float64)
        for name, model in models.items()
    }


def _scored(name: str, train: Any, test: Any, problem: JointDataset) -> Iterator[tuple[str, float]]:
    some = problem.train.take(np.arange(min(SAMPLE, len(problem.train))))
    score = test if name == "all" else calibrate(problem.loss, train[: len(some)], some).apply(test)
    yield f"{name} AUC", metric("binary", score, problem.test)
    yield f"{name} loss", mean_loss(problem.loss, score, problem.test)


def _ratios(found: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, Any]]:
    plain, trained = found["absence 0"], found[f"absence {_HELD_TO:g}"]
    without = [each[f"without {_PARTY} AUC"] for each in trained]
    lost = [before["all AUC"] - each["all AUC"] for before, each in zip(plain, trained, strict=True)]
    gained = [
        each[f"without {_PARTY} AUC"] - before[f"without {_PARTY} AUC"]
        for before, each in zip(plain, trained, strict=True)
    ]
    return {
        f"absence {_HELD_TO:g}: AUC without {_PARTY}": {**spread(without), "mean": mean(without), "at_least": _WORST},
        f"absence {_HELD_TO:g}: AUC lost with all": {**spread(lost), "mean": mean(lost), "at_most": _MOST_LOST},
        f"absence {_HELD_TO:g}: AUC gained without {_PARTY}": {**spread(gained), "mean": mean(gained)},
    }
