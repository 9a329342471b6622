"""The paper's noise figure on a9a with what the noise is worth, and how far a few releases go.

Every case is trained in one process, per seed and kind of model, beside alone,
late fusion, pooled and unguarded joint training on the same rows. Test rows are
predicted without noise. Epsilon is what the ledger has counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.noise_plot import Band, Level, NoiseCurve, draw_noise
from fdml.experiments.compare import Contender, compare, joint_plan
from fdml.experiments.dataset import JointDataset
from fdml.experiments.in_process import TrainingResult, train_in_process
from fdml.experiments.paper import PARTIES, a9a_dataset, contenders
from fdml.models.metrics import mean_loss, metric
from fdml.monitor.history import Scheme
from fdml.party.denoising import probit_scale
from fdml.privacy.ledger import DIRECT, Ledger
from fdml.settings import GuardSettings, TrainingSettings

UNIT = "test AUC"
DELTA = 1e-5
CLIP = 4.0
"""Of the noise levels as they are drawn: epsilon needs a bound. The rows say how many predictions it shortens."""
LOOSE = 50.0
"""A clip that shortens nothing, as the paper has none."""
_TIMES = 4.0
"""Noise in clips, where a release is made in every epoch."""
_UNGUARDED = "joint, no guard"
_APART: tuple[Scheme, ...] = ("alone", "late fusion", "pooled")
"""What no noise touches."""


@dataclass(frozen=True)
class Sizes:
    """How much is trained."""

    levels: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 5.0)
    """Standard deviations of the noise in the paper's figure."""
    epochs: int = 20
    rows: int | None = None
    """Training rows; None takes all."""
    seeds: int = 3


@dataclass(frozen=True)
class Case:
    """One way to guard joint training."""

    name: str
    guard: GuardSettings
    training: TrainingSettings
    baseline: str
    """Whose AUC it is held against."""
    level: float | None = None
    """The noise, if the case is of the paper's figure."""
    bars: Mapping[str, float] = field(default_factory=dict)
    """By kind of model: the AUC to reach."""
    gains: Mapping[str, float] = field(default_factory=dict)
    """By kind of model: the AUC to gain over the baseline."""


@dataclass(frozen=True)
class Figures:
    """What one training gives."""

    auc: float
    loss: float
    recalibrated: float
    """The loss once the score is divided by what the others' noise has blown it up by; this takes no release."""
    clipped: float = 0.0
    """The share of the last models' predictions of training rows that the clip shortens."""
    ledger: Ledger | None = None
    """Of the party that has spent most."""

    @property
    def epsilon(self) -> float | None:
        """Of the row that was released most; None without noise."""
        spent = math.inf if self.ledger is None else self.ledger.worst()[1]
        return None if math.isinf(spent) else spent


Found = Mapping[str, Sequence[Figures]]
"""By scheme or case, one per seed."""


def run(progress: Progress, seeds: int | None = None, plot: Path | None = None, sizes: Sizes | None = None) -> Report:
    """Train every case with every kind of model, once per seed."""
    sizes = sizes or Sizes()
    sizes = sizes if seeds is None else replace(sizes, seeds=seeds)
    made_on, made_of = machine(), commit()
    problem = a9a_dataset()
    if sizes.rows is not None:
        problem = replace(problem, train=problem.train.take(np.arange(sizes.rows)))
    cases = cases_of(sizes)
    found = {each.name: _train(problem, each, cases, sizes, progress) for each in contenders()}
    if plot is not None:
        terms = f"delta {DELTA:g}, clip {CLIP:g}, {sizes.epochs} releases of each row"
        draw_noise([_curve(model, cases, figures) for model, figures in found.items()], terms, plot)
        progress(f"drawn to {plot}")
    return Report(
        "noise",
        _question(sizes, _crossing(cases, found)),
        [line for model, figures in found.items() for line in _rows(model, cases, figures)],
        {name: gain for model, figures in found.items() for name, gain in _gains(model, cases, figures)},
        made_on,
        made_of,
    )


def training_of(epochs: int) -> TrainingSettings:
    """As the paper trains."""
    return TrainingSettings(epochs=epochs, batch_size=100, batches_per_block=16, learning_rate=0.5)


def cases_of(sizes: Sizes) -> list[Case]:
    """The levels of the paper's figure, then what has a bar of its own."""
    full, half = training_of(sizes.epochs), training_of(sizes.epochs // 2)
    once = TrainingSettings(epochs=sizes.epochs, batch_size=100, learning_rate=0.5, exchanges=1)
    both = {"LR": 0.0, "NN": 0.0}
    levels = [
        Case(f"noise {level:g}, clip {clip:g}", _gaussian(clip, level), full, "alone", level, gains=both)
        for clip in (CLIP, LOOSE)
        for level in sizes.levels
    ]
    budgets = {5.4: {"LR": 0.9, "NN": 0.902}, 2.5: {"NN": 0.9005}}
    few = [
        Case(f"1 release, epsilon {budget:g}", _within(budget), once, "late fusion", bars=bars, gains={"NN": 0.0})
        for budget, bars in budgets.items()
    ]
    many = [
        Case(f"{half.epochs} releases, clip {clip:g}", _times(clip), half, "late fusion", bars={"LR": 0.885})
        for clip in (1.0, 2.0)
    ]
    lost = {"LR": -0.01, "NN": -0.01}
    return [*levels, *few, *many, Case(f"{full.epochs} releases, clip 2", _times(2.0), full, _UNGUARDED, gains=lost)]


def _gaussian(clip: float, sigma: float) -> GuardSettings:
    if sigma == 0.0:
        return GuardSettings(clip=clip)
    return GuardSettings(clip=clip, noise="gaussian", sigma=sigma, delta=DELTA)


def _times(clip: float) -> GuardSettings:
    return _gaussian(clip, _TIMES * clip)


def _within(budget: float) -> GuardSettings:
    return GuardSettings(clip=3.0, noise="gaussian", sigma="auto", epsilon=budget, delta=DELTA)


def _train(
    problem: JointDataset, contender: Contender, cases: Sequence[Case], sizes: Sizes, progress: Progress
) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {}
    plain = replace(contender, training=training_of(sizes.epochs))
    for seed in range(1, sizes.seeds + 1):
        progress(f"{contender.name}, seed {seed} of {sizes.seeds}")
        for curve in compare(problem, [plain], [seed]):
            name = _UNGUARDED if curve.scheme == "joint" else curve.scheme
            auc, loss = curve.last.test_metric, curve.last.test_loss
            found.setdefault(name, []).append(Figures(auc, loss, loss))
        for case in cases:
            guarded = replace(contender, training=case.training, guards=dict.fromkeys(PARTIES, case.guard))
            found.setdefault(case.name, []).append(_train_guarded(problem.shuffled(seed), guarded, seed))
    return found


def _train_guarded(problem: JointDataset, contender: Contender, seed: int) -> Figures:
    outcome = train_in_process(joint_plan(problem, contender, seed), problem.train)
    score = outcome.score(problem.test.parts)
    ledgers = outcome.ledgers.items()
    others = sum(ledger.mechanism.variance for name, ledger in ledgers if name != problem.label_party)
    return Figures(
        metric(problem.encoding.task, score, problem.test, problem.loss),
        mean_loss(problem.loss, score, problem.test),
        mean_loss(problem.loss, probit_scale(others) * score, problem.test),
        _clipped(problem, outcome),
        max(outcome.ledgers.values(), key=lambda ledger: ledger.worst()[1]),
    )


def _clipped(problem: JointDataset, outcome: TrainingResult) -> float:
    """The share of values past their party's clip, at the party where it is largest."""
    return max(
        float(np.mean(np.abs(model.predict(problem.train.parts[name])) > outcome.ledgers[name].mechanism.clip))
        for name, model in outcome.models.items()
    )


def _rows(model: str, cases: Sequence[Case], found: Found) -> Iterator[dict[str, Any]]:
    """A line for every scheme, then one for every case."""
    for name in (*_APART, _UNGUARDED):
        yield _row(f"{model} {name}", found[name])
    for case in cases:
        target = {"target": case.bars[model]} if model in case.bars else {}
        yield _row(f"{model} joint, {case.name}", found[case.name]) | _facts(case, found[case.name]) | target


def _row(name: str, figures: Sequence[Figures]) -> dict[str, Any]:
    aucs = [each.auc for each in figures]
    return row(name, aucs, UNIT) | {"mean": mean(aucs), "loss": mean(each.loss for each in figures)}


def _facts(case: Case, figures: Sequence[Figures]) -> dict[str, Any]:
    """What a case is, and what it gives besides AUC: means over the seeds."""
    facts: dict[str, Any] = {"clip": case.guard.clip, "clipped": mean(each.clipped for each in figures)}
    if case.training.exchanges is None:  # otherwise the parties have taken the noise into account
        facts["recalibrated_loss"] = mean(each.recalibrated for each in figures)
    ledger = figures[0].ledger
    if ledger is not None:
        facts |= {"sigma": ledger.mechanism.sigma, "releases": ledger.releases(ledger.worst()[0])}
        facts |= {"epsilon": figures[0].epsilon, "delta": ledger.delta}
    return facts


def _gains(model: str, cases: Sequence[Case], found: Found) -> Iterator[tuple[str, dict[str, Any]]]:
    """The AUC of each case minus its baseline's, formed inside each seed."""
    for case in cases:
        pairs = zip(found[case.name], found[case.baseline], strict=True)
        target = {"target": case.gains[model]} if model in case.gains else {}
        name = f"{model} {case.name}: AUC gained over {case.baseline}"
        yield name, spread([mine.auc - theirs.auc for mine, theirs in pairs]) | target


def _curve(model: str, cases: Sequence[Case], found: Found) -> NoiseCurve:
    levels = [
        Level(
            case.level,
            found[case.name][0].epsilon,
            _band([each.auc for each in found[case.name]]),
            _band([each.loss for each in found[case.name]]),
            _band([each.recalibrated for each in found[case.name]]),
        )
        for case in cases
        if case.level is not None and case.guard.clip == CLIP
    ]
    lines = {
        scheme: (mean(each.auc for each in found[scheme]), mean(each.loss for each in found[scheme]))
        for scheme in _APART
    }
    return NoiseCurve(model, levels, lines)


def _band(figures: Sequence[float]) -> Band:
    return Band(mean(figures), min(figures), max(figures))


def _crossing(cases: Sequence[Case], found: Mapping[str, Found]) -> str:
    """Where joint training, with any seed of any kind of model, is no better than alone."""
    levels = [case for case in cases if case.level is not None]
    lost = [
        f"{model} at {case.name}"
        for model, figures in found.items()
        for case in levels
        if any(mine.auc <= alone.auc for mine, alone in zip(figures[case.name], figures["alone"], strict=True))
    ]
    return (
        f"joint training is no better than alone for {', '.join(lost)}" if lost else "joint beats alone at every level"
    )


def _question(sizes: Sizes, crossing: str) -> str:
    return (
        f"What does joint training on a9a lose to noise, and what is the noise worth? 'noise': Gaussian, on every "
        f"prediction that leaves either party, once per row in each of {sizes.epochs} epochs, with clip {CLIP:g} and "
        f"with one that shortens nothing. The others: 1 release with clip 3, or one per epoch with noise of "
        f"{_TIMES:g} clips. {sizes.seeds} seeds. Epsilon (delta {DELTA:g}) is of what leaves in training: {DIRECT}. "
        f"Test rows are predicted without noise. The paper's figure cannot be matched, as it does not give the scale, "
        f"clipping and schedule of its noise: there joint training beats local learning up to level 3; here {crossing}."
    )
