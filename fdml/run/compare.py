"""Alone, late fusion, pooled and joint on the same split, for one or more kinds of model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fdml.data.rows import width
from fdml.run.calibration import calibrate
from fdml.run.evaluate import history, mean_loss, metric
from fdml.run.problem import Problem
from fdml.run.simulate import Outcome, Plan, joint_score, simulate
from fdml.settings import ModelSettings, TrainingSettings
from fdml.watch.events import Listener
from fdml.watch.history import SCHEMES, Curve, EpochRecord, Scheme, mean_records


@dataclass(frozen=True)
class Contender:
    """One kind of model to compare, under a name for people."""

    name: str
    training: TrainingSettings
    models: Mapping[str, ModelSettings]
    """One per party; the pooled scheme trains the label party's."""


def compare(
    problem: Problem, contenders: Sequence[Contender], seeds: Sequence[int], listener: Listener | None = None
) -> list[Curve]:
    """Train every contender under every scheme, once per seed."""
    results = []
    for contender in contenders:
        runs = [_one_seed(problem.shuffled(seed), contender, seed, listener) for seed in seeds]
        results += [
            Curve(contender.name, scheme, mean_records([run[scheme] for run in runs]))
            for scheme in SCHEMES
            if scheme in runs[0]
        ]
    return results


def workload(problem: Problem, contenders: Sequence[Contender], seeds: Sequence[int]) -> int:
    """How many `EpochDone` events a comparison will send."""
    parties = len(problem.train.parts)
    trainings = len(_trainable(problem)) + 1 + parties
    return sum(trainings * contender.training.epochs * len(seeds) for contender in contenders)


def _trainable(problem: Problem) -> list[str]:
    return [name for name, rows in problem.train.parts.items() if width(rows) > 0]


def _one_seed(
    problem: Problem, contender: Contender, seed: int, listener: Listener | None
) -> dict[Scheme, list[EpochRecord]]:
    def run(part: Problem, models: Mapping[str, ModelSettings]) -> Outcome:
        training = contender.training.model_copy(update={"seed": seed})
        plan = Plan(training, models, part.label_party, part.loss, part.code.outputs)
        return simulate(plan, part.train, keep_epochs=True, listener=listener)

    alone = {name: run(problem.only(name), {name: contender.models[name]}) for name in _trainable(problem)}
    pooled = problem.pooled()
    results: dict[Scheme, list[EpochRecord]] = {}
    if problem.label_party in alone:
        results["alone"] = history(problem.only(problem.label_party), alone[problem.label_party])
    results["late fusion"] = _fused(problem, alone)
    results["pooled"] = history(pooled, run(pooled, {pooled.label_party: contender.models[problem.label_party]}))
    results["joint"] = history(problem, run(problem, contender.models))
    return results


def _fused(problem: Problem, alone: Mapping[str, Outcome]) -> list[EpochRecord]:
    """Epoch by epoch; the seconds are the slowest party's, as they need not wait for each other."""
    models = {name: outcome.models[name] for name, outcome in alone.items()}
    records = []
    for snapshots in zip(*(outcome.snapshots for outcome in alone.values()), strict=True):
        for snapshot in snapshots:
            for name, state in snapshot.states.items():
                models[name].restore(state)
        trained = joint_score(models, problem.train.parts)
        calibration = calibrate(problem.loss, trained, problem.train)
        tested = calibration.apply(joint_score(models, problem.test.parts))
        records.append(
            EpochRecord(
                snapshots[0].epoch,
                max(snapshot.seconds for snapshot in snapshots),
                mean_loss(problem.loss, calibration.apply(trained), problem.train)
                + sum(model.penalty() for model in models.values()),
                mean_loss(problem.loss, tested, problem.test),
                metric(problem.code.task, tested, problem.test),
            )
        )
    return records
