"""Alone, late fusion, pooled and joint on the same split, for one or more kinds of model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fdml.data.rows import width
from fdml.errors import SettingsError
from fdml.events import Listener, Reliability, SchemeBegun, SchemeDone
from fdml.experiments.dataset import JointDataset
from fdml.experiments.evaluate import learning_curve
from fdml.experiments.in_process import TrainingResult, train_in_process
from fdml.models.bootstrap import paired_difference
from fdml.models.calibration import calibrate
from fdml.models.losses import Floats
from fdml.models.metrics import mean_loss, metric
from fdml.models.reliability import reliability_of
from fdml.monitor.history import SCHEMES, EpochRecord, Gain, LearningCurve, Scheme, mean_records
from fdml.party.plan import Plan, joint_score
from fdml.protocol.agreed_training import agreed_training
from fdml.settings import GuardSettings, ModelSettings, TrainingSettings

_WITHOUT_JOINT: tuple[Scheme, ...] = ("alone", "late fusion")
"""What parties can do without training jointly."""


@dataclass(frozen=True)
class Contender:
    """One kind of model to compare, under a name for people."""

    name: str
    training: TrainingSettings
    models: Mapping[str, ModelSettings]
    """One per party; the pooled scheme trains the label party's."""
    guards: Mapping[str, GuardSettings] = field(default_factory=dict)
    """Of the parties that protect what they release, which they do in joint training alone."""


@dataclass(frozen=True, eq=False)
class SchemeResult:
    """One training of one scheme."""

    records: Sequence[EpochRecord]
    score: Floats
    """Of the test rows, by the last models."""


def compare(
    problem: JointDataset,
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    on_event: Listener = lambda _: None,
    joined: Callable[[TrainingResult], None] | None = None,
    *,
    gains: bool = False,
) -> list[LearningCurve]:
    """Train every contender under every scheme, once per seed; `joined` gets what each joint training leaves behind.

    Guards and `training.exchanges` limit what leaves a party, so they bind joint
    training only. Its figures are of the exact sum of predictions in any case. With
    `gains` joint training has what it brings over what takes no joint training.
    """
    results = []
    for contender in contenders:
        runs = [_one_seed(problem.shuffled(seed), contender, seed, on_event, joined) for seed in seeds]
        brings = mean_gains([joint_gains(problem, run, seed) for run, seed in zip(runs, seeds, strict=True)] * gains)
        results += [
            LearningCurve(
                contender.name,
                scheme,
                mean_records([run[scheme].records for run in runs]),
                brings if scheme == "joint" else {},
                _reliability(problem, runs[-1][scheme]) if gains else None,
            )
            for scheme in SCHEMES
            if scheme in runs[0]
        ]
    return results


def joint_gains(problem: JointDataset, results: Mapping[Scheme, SchemeResult], seed: int) -> dict[Scheme, Gain]:
    """What joint training brings over what takes no joint training, on the same resamples of the test rows."""
    task, joint = problem.encoding.task, results["joint"].score
    return {
        scheme: paired_difference(task, joint, results[scheme].score, problem.test, seed=seed, loss=problem.loss)
        for scheme in _WITHOUT_JOINT
        if scheme in results
    }


def mean_gains(runs: Sequence[Mapping[Scheme, Gain]]) -> dict[Scheme, Gain]:
    """The mean over several runs; what is not known in one of them is not known."""
    found = {scheme: list(zip(*(run[scheme] for run in runs), strict=True)) for scheme in (runs[0] if runs else {})}
    return {scheme: Gain(*map(_mean_or_none, figures)) for scheme, figures in found.items()}


def _reliability(problem: JointDataset, result: SchemeResult) -> Reliability | None:
    """How well the probabilities of the test rows came true; None where the task has none."""
    if problem.encoding.task != "binary":
        return None
    epoch = result.records[-1].epoch
    return reliability_of(problem.label_party, epoch, problem.loss, result.score, problem.test)


def _mean_or_none(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return float(np.mean(known)) if len(known) == len(figures) else None


def workload(problem: JointDataset, contenders: Sequence[Contender], seeds: Sequence[int]) -> int:
    """How many `EpochDone` events a comparison will send, if no budget ends a training early."""
    apart, parties = len(_trainable(problem)) + 1, len(problem.train.parts)
    trainings = [contender.training for contender in contenders]
    epochs = [agreed_training(each, len(problem.train), parties).epochs for each in trainings]
    return len(seeds) * sum(
        apart * count + parties * (each.exchanges or count) for each, count in zip(trainings, epochs, strict=True)
    )


def _trainable(problem: JointDataset) -> list[str]:
    return [name for name, rows in problem.train.parts.items() if width(rows) > 0]


def _one_seed(
    problem: JointDataset,
    contender: Contender,
    seed: int,
    on_event: Listener,
    joined: Callable[[TrainingResult], None] | None,
) -> dict[Scheme, SchemeResult]:
    nothing_joint: dict[str, Any] = {"exchanges": None, "joint": "sum", "joint_width": None}
    apart = contender.training.model_copy(update={"seed": seed, **nothing_joint})

    def run(part: JointDataset, models: Mapping[str, ModelSettings]) -> TrainingResult:
        plan = Plan(apart, models, part.label_party, part.loss, part.encoding.class_count)
        return train_in_process(plan, part.train, held_out=part.test, keep_epochs=True, on_event=on_event)

    results: dict[Scheme, SchemeResult] = {}

    def begin(scheme: Scheme) -> None:
        on_event(SchemeBegun(problem.label_party, contender.name, scheme, seed))

    def end(scheme: Scheme, found: SchemeResult) -> None:
        results[scheme], last = found, found.records[-1]
        on_event(SchemeDone(problem.label_party, contender.name, scheme, seed, last.test_loss, last.test_metric))

    begin("alone")
    alone = {name: run(problem.only(name), {name: contender.models[name]}) for name in _trainable(problem)}
    if problem.label_party in alone:
        end("alone", _result(problem.only(problem.label_party), alone[problem.label_party]))
    end("late fusion", _fused(problem, alone))
    begin("pooled")
    pooled = problem.pooled()
    end("pooled", _result(pooled, run(pooled, {pooled.label_party: contender.models[problem.label_party]})))
    begin("joint")
    plan = joint_plan(problem, contender, seed)
    outcome = train_in_process(plan, problem.train, held_out=problem.test, keep_epochs=True, on_event=on_event)
    if joined is not None:
        joined(outcome)
    end("joint", SchemeResult(_joint_history(problem, plan, outcome), outcome.score(problem.test.parts)))
    return results


def _result(problem: JointDataset, outcome: TrainingResult) -> SchemeResult:
    return SchemeResult(learning_curve(problem, outcome), outcome.score(problem.test.parts))


def joint_plan(problem: JointDataset, contender: Contender, seed: int) -> Plan:
    """The joint training of a contender."""
    exact = {"evaluation": "exact"}  # a comparison is of the models, not of the noise on their evaluation
    return Plan(
        contender.training.model_copy(update={"seed": seed}),
        contender.models,
        problem.label_party,
        problem.loss,
        problem.encoding.class_count,
        guards={name: guard.model_copy(update=exact) for name, guard in contender.guards.items()},
    )


def _joint_history(problem: JointDataset, plan: Plan, outcome: TrainingResult) -> list[EpochRecord]:
    """As of every training; where exchanges are few, an epoch is as many passes as were done by then."""
    records = learning_curve(problem, outcome)
    if not records:
        raise SettingsError(
            "a party's budget is spent before the first epoch has ended, so there is no joint model to compare; "
            "set more noise or a larger guard.epsilon"
        )
    schedule = plan.schedule(len(problem.train))
    if not schedule.passes_per_exchange:
        return records
    return [
        replace(each, epoch=schedule.local_passes + sum(schedule.passes_per_exchange[: each.epoch])) for each in records
    ]


def _fused(problem: JointDataset, alone: Mapping[str, TrainingResult]) -> SchemeResult:
    """Epoch by epoch; the seconds are the slowest party's, as they need not wait for each other."""
    models = {name: outcome.models[name] for name, outcome in alone.items()}
    records: list[EpochRecord] = []
    tested: Floats = np.zeros((0, 1))
    for snapshots in zip(*(outcome.snapshots for outcome in alone.values()), strict=True):
        for snapshot in snapshots:
            for name, state in snapshot.states.items():
                models[name].restore(state)
        trained = joint_score(models, problem.train.parts, problem.objective)
        calibration = calibrate(problem.loss, trained, problem.train)
        tested = calibration.apply(joint_score(models, problem.test.parts, problem.objective))
        records.append(
            EpochRecord(
                snapshots[0].epoch,
                max(snapshot.seconds for snapshot in snapshots),
                mean_loss(problem.loss, calibration.apply(trained), problem.train)
                + sum(model.penalty() for model in models.values()),
                mean_loss(problem.loss, tested, problem.test),
                metric(problem.encoding.task, tested, problem.test, problem.loss),
            )
        )
    return SchemeResult(records, tested)
