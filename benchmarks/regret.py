"""Does the regret fall as the paper's theorem says, with parties that are far apart?

The paper's Algorithm 1 (one batch per block, lookahead 0, step size eta / sqrt(t))
on logistic regression. The production coordinator and workers run in one thread
and without a clock: the first party is always as far ahead as the staleness lets
it, so every run is the same whatever the machine does.

The regret of step t is F_t(x_t) - F_t(x*). x_t are the parameters of all parties
at their own step t: the slowest party's total is made of exactly these, as all
others have pushed that step before. x* is the best that could be known in
hindsight, fitted to all rows in one place; nothing is regularised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row
from benchmarks.regret_plot import RegretCurve, draw_regret
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows, to_dense
from fdml.errors import InvariantBroken, SettingsError
from fdml.models.losses import LOSSES
from fdml.models.registry import model_settings
from fdml.party.loop import Worker
from fdml.party.plan import Plan, build_worker
from fdml.privacy.build_guard import guard_for, seeded_key
from fdml.protocol.fixed_point import decode
from fdml.protocol.messages import Checkpointed, Total
from fdml.server.coordinator import Coordinator
from fdml.settings import GuardSettings, TrainingSettings

STALENESS = (0, 4, 16, 64)
PARTIES = ("fast", "slow")
BAR = -0.45
"""The slope should be at most this; the theorem promises -0.5 in the end."""
_WIDTH = 8
"""Features of each party."""
_RATE = 1.0
"""Eta. A much smaller one only stretches the beginning, which is flat."""
_STRENGTH = 1.5
"""Standard deviation of the true score: labels can be learned, but stay uncertain."""
_FROM = 100
"""The step from which on the slope is fitted."""
_POINTS = 200
_LOGISTIC = LOSSES["logistic"]
Figures = NDArray[np.float64]


@dataclass(frozen=True)
class Sizes:
    """How much is tried."""

    batches: int = 128
    """Of an epoch."""
    batch_size: int = 10
    epochs: int = 80
    seeds: int = 3

    @property
    def steps(self) -> int:
        """Of one run."""
        return self.batches * self.epochs


@dataclass(frozen=True)
class RegretTrace:
    """The regret of every step of one run."""

    joint: Figures
    """With the parameters that all parties had at that step."""
    fast: Figures
    """With the total that the fast party used: the other part of it is stale."""
    lead: int
    """The most steps by which the fast party was ahead."""
    lag: float
    """By how many steps the oldest part of the fast party's totals was stale, in the median."""


def run(progress: Progress, seeds: int = 3, plot: Path | None = None, epochs: int = 80) -> Report:
    """Try every staleness with every seed."""
    of_machine, made_by = machine(), commit()
    sizes = Sizes(epochs=epochs, seeds=seeds)
    found = all_traces(sizes, progress)
    if plot is not None:
        curves = [
            RegretCurve(staleness, [average(trace.joint) for trace in traces], mean(_slopes(traces)))
            for staleness, traces in found.items()
        ]
        draw_regret(curves, _FROM, plot)
    rows = [_row(staleness, traces) for staleness, traces in found.items()]
    return Report("regret", _question(sizes, rows), rows, {}, of_machine, made_by)


def all_traces(sizes: Sizes, progress: Progress) -> dict[int, list[RegretTrace]]:
    """The traces of all seeds, by staleness."""
    found: dict[int, list[RegretTrace]] = {staleness: [] for staleness in STALENESS}
    for seed in range(1, sizes.seeds + 1):
        sample = draw_sample(sizes.batches * sizes.batch_size, seed)
        least = least_losses(sample)
        for staleness in STALENESS:
            progress(f"seed {seed} of {sizes.seeds}, staleness {staleness}")
            training = TrainingSettings(
                epochs=sizes.epochs,
                batch_size=sizes.batch_size,
                batches_per_block=1,
                lookahead=0,
                staleness=staleness,
                learning_rate=_RATE,
                lr_decay="sqrt",
                seed=seed,
            )
            found[staleness].append(follow(training, sample, least))
    return found


def draw_sample(rows: int, seed: int) -> RowSet:
    """Rows with the same number of features at every party, all a little alike, and uncertain labels."""
    chance = np.random.default_rng(seed)
    X = chance.normal(size=(rows, _WIDTH * len(PARTIES))) + 0.5 * chance.normal(size=(rows, 1))
    score = X @ chance.normal(size=X.shape[1])
    score *= _STRENGTH / score.std()
    labels = (chance.random(rows) < 1.0 / (1.0 + np.exp(-score))).astype(np.float64)
    parts = np.split(X.astype(np.float32), len(PARTIES), axis=1)
    return RowSet(
        {name: as_rows(np.ascontiguousarray(part)) for name, part in zip(PARTIES, parts, strict=True)},
        labels,
        np.ones(rows),
    )


def least_losses(sample: RowSet) -> Figures:
    """The loss of each row with the parameters that are best for all rows."""
    X = np.hstack([*map(to_dense, sample.parts.values()), np.ones((len(sample), 1))])

    def objective(point: Figures) -> tuple[float, Figures]:
        score = (X @ point)[:, None]
        value = float(_LOGISTIC.value(score, sample.labels).mean())
        return value, X.T @ _LOGISTIC.gradient(score, sample.labels)[:, 0] / len(sample)

    best = minimize(
        objective, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 1000, "gtol": 1e-9, "ftol": 0}
    )
    return np.asarray(_LOGISTIC.value((X @ best.x)[:, None], sample.labels), np.float64)


def follow(training: TrainingSettings, sample: RowSet, least: Figures) -> RegretTrace:
    """One run, and the regret of each of its steps."""
    plan = Plan(training, dict.fromkeys(PARTIES, model_settings(optimizer="sgd", l2=0.0)), PARTIES[0], "logistic", 2)
    schedule = plan.schedule(len(sample))
    coordinator = Coordinator(PARTIES, schedule, plan.objective.width, training.staleness)
    workers = {name: _worker(plan, sample, name) for name in PARTIES}
    fast, slow = (workers[name] for name in PARTIES)
    regrets: dict[str, list[float]] = {name: [] for name in PARTIES}
    lags: list[int] = []
    lead = 0
    for name, total in served(workers, coordinator):
        visit = schedule.visit(total.step)
        losses = _LOGISTIC.value(decode(total.values), sample.labels[visit.start : visit.stop])
        regrets[name].append(float(np.mean(losses - least[visit.start : visit.stop])))
        lead = max(lead, fast.step - slow.step)
        if name == fast.party:
            lags.append(total.lag)
        elif total.lag:
            raise InvariantBroken(
                f"the slowest party was given a part of step {min(total.pushed_at)} for step {total.step}"
            )
    return RegretTrace(np.array(regrets["slow"]), np.array(regrets["fast"]), lead, median(lags))


def _worker(plan: Plan, sample: RowSet, name: str) -> Worker:
    guard = guard_for(
        GuardSettings(), plan.schedule(len(sample)), seeded_key(plan.training.seed, name), parties=plan.party_count
    )
    return build_worker(plan, sample, name, guard)


def served(workers: Mapping[str, Worker], coordinator: Coordinator) -> Iterator[tuple[str, Total]]:
    """Run all workers to their end; gives each total just before its party learns from it.

    The first of them that can go on does, so each is as far ahead of those after it
    as the coordinator lets it.
    """
    waiting: dict[str, deque[Total]] = {}
    while (name := next((name for name in workers if name not in waiting or waiting[name]), None)) is not None:
        worker = workers[name]
        if name in waiting:
            total = waiting[name].popleft()
            yield name, total
            messages = worker.learn(total)
        else:
            waiting[name] = deque()
            messages = worker.first_messages()
        for message in messages:
            for reply in coordinator.handle(name, message):
                if isinstance(reply.message, Total):
                    waiting[reply.to].append(reply.message)
        coordinator.handle(name, Checkpointed(worker.step - 1))
    stuck = [name for name, worker in workers.items() if not worker.finished]
    if stuck:
        raise InvariantBroken(f"{', '.join(stuck)} wait for ever")


def average(regrets: Figures) -> Figures:
    """The mean regret of the first T steps, for every T."""
    return np.asarray(np.cumsum(regrets) / np.arange(1, len(regrets) + 1), np.float64)


def slope(averages: Figures, first: int = _FROM) -> float:
    """Of the average regret against T on logarithmic axes, fitted from step `first` on; all decades weigh the same."""
    at = np.unique(np.geomspace(first, len(averages), _POINTS).astype(np.int64))
    values = averages[at - 1]
    if not np.all(values > 0.0):
        below = int(at[np.argmin(values)])
        raise SettingsError(f"the average regret of {below} steps is {values.min():.2g}, not above 0; take more rows")
    return float(np.polyfit(np.log(at), np.log(values), 1)[0])


def _slopes(traces: Sequence[RegretTrace]) -> list[float]:
    return [slope(average(trace.joint)) for trace in traces]


def _row(staleness: int, traces: Sequence[RegretTrace]) -> dict[str, Any]:
    return row(f"staleness {staleness}: slope of the average regret", _slopes(traces), "log R / log T") | {
        "staleness": staleness,
        "at_most": BAR,
        "average_regret": mean(float(trace.joint.mean()) for trace in traces),
        "fast_party_slope": median(slope(average(trace.fast)) for trace in traces),
        "fast_party_average_regret": mean(float(trace.fast.mean()) for trace in traces),
        "lead": max(trace.lead for trace in traces),
        "lag": median(trace.lag for trace in traces),
    }


def _question(sizes: Sizes, rows: Sequence[Mapping[str, Any]]) -> str:
    missed = [f"staleness {each['staleness']}" for each in rows if each["max"] > BAR]
    outcome = f"not met with {', '.join(missed)}" if missed else "met by every seed of every staleness"
    return (
        f"Does the average regret fall as the paper's theorem says? It promises O(1 / sqrt(T)) for a convex loss and "
        f"steps of eta / sqrt(t), which is a slope of -0.5 or steeper on logarithmic axes. Measured: slopes from "
        f"{min(each['min'] for each in rows):.2f} to {max(each['max'] for each in rows):.2f} over T = {_FROM} to "
        f"{sizes.steps:,}; the bar of {BAR} is {outcome}. Logistic regression, 2 parties, "
        f"{sizes.batches * sizes.batch_size:,} rows, batches of {sizes.batch_size}, one per block, lookahead 0, "
        f"{sizes.seeds} seeds; one party always as far ahead as it may. With staleness above 0 that party's totals are "
        f"really older than the theorem assumes: what it is sent of a block is from the epoch before "
        f"({max(each['lag'] for each in rows):.0f} steps), and in the first epoch nothing at all."
    )
