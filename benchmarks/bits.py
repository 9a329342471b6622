"""What do few bits of a prediction cost in quality, and what do they save on the line?

Every case is trained in one process, once per seed and `value_bits`, on the same
rows in the same order. AUC is that of the last models on the test rows, exact.
Bytes are those of all pushes and totals as they would travel: a second coordinator
takes every push and its answers are counted. The first epoch sends whole
predictions, so it is counted apart from a later one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from fdml.data.label_encoding import fit_labels
from fdml.data.partition import partition
from fdml.data.row_set import RowSet
from fdml.data.rows import vstack
from fdml.data.samples.adult import a9a
from fdml.data.samples.app_store.dataset import PARTIES as APPS
from fdml.data.samples.app_store.dataset import AppStore
from fdml.data.samples.nyc_flights import MODULE, nyc_flights
from fdml.data.table import PartyData
from fdml.errors import FdmlError
from fdml.experiments.compare import Contender, joint_plan
from fdml.experiments.dataset import JointDataset, build_dataset
from fdml.experiments.in_memory import run_of
from fdml.experiments.in_process import train_in_process
from fdml.models.metrics import auc
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.protocol.few_bits import few_bits_of
from fdml.protocol.fixed_point import grid_of
from fdml.protocol.messages import FromParty, Push, Total
from fdml.protocol.wire import encode_from_party, encode_from_server
from fdml.server.coordinator import Coordinator
from fdml.settings import ModelSettings, PrivacySettings, TrainingSettings

BITS = (64, 16, 8, 4, 2)
MOST_LOST = 0.0005
"""AUC that 4 bits may lose."""
_TEN_TIMES = 8.0
"""At least so much less than 64 bits in an epoch after the first."""
_GROUPS = {2: (range(67), range(67, 123)), 3: (range(41), range(41, 82), range(82, 123))}
_BATCH = 100


@dataclass(frozen=True)
class Sizes:
    """How much is trained."""

    seeds: int = 3
    rows: int = 100_000
    """Of the twin and of NYC flights; a9a has all of its rows."""
    epochs: int = 10
    bits: tuple[int, ...] = BITS
    parties: tuple[int, ...] = (2, 3)


@dataclass(frozen=True)
class Case:
    """One data set and model, under a name for people."""

    name: str
    problem: Callable[[], JointDataset]
    contender: Contender


@dataclass
class Traffic:
    """Bytes of pushes and totals, by epoch."""

    plan: Plan
    rows: int
    width: int
    privacy: PrivacySettings = field(default_factory=PrivacySettings)

    def __post_init__(self) -> None:
        """A coordinator beside the run's own."""
        run, training = run_of(self.plan, self.privacy), self.plan.agreed(self.rows)
        self.pushed = np.zeros(training.epochs)
        self.returned = np.zeros(training.epochs)
        self._schedule = self.plan.schedule(self.rows)
        self._coordinator = Coordinator(
            run.parties,
            self._schedule,
            self.width,
            training.staleness,
            blind=self.privacy.server == "blind",
            grid=grid_of(training.value_bits),
            few_bits=few_bits_of(run),
        )

    def take(self, sender: str, message: FromParty) -> None:
        """Count a push and what the server answers to it."""
        if not isinstance(message, Push):
            return
        self.pushed[self._schedule.visit(message.step).epoch] += len(encode_from_party(message))
        for reply in self._coordinator.handle(sender, message):
            if isinstance(reply.message, Total):
                size = len(encode_from_server(reply.message))
                self.returned[self._schedule.visit(reply.message.step).epoch] += size

    @property
    def first(self) -> float:
        """Bytes of the first epoch."""
        return float(self.pushed[0] + self.returned[0])

    @property
    def later(self) -> float:
        """Bytes of an epoch after the first."""
        return float((self.pushed[1:] + self.returned[1:]).mean())

    @property
    def each(self) -> float:
        """Bytes of an epoch, over all of them."""
        return float((self.pushed + self.returned).mean())


@dataclass(frozen=True)
class Outcome:
    """One training."""

    auc: float
    traffic: Traffic


def run(progress: Progress, seeds: int | None = None, rows: int | None = None, sizes: Sizes | None = None) -> Report:
    """Train every case with every number of bits."""
    sizes = sizes or Sizes()
    sizes = Sizes(seeds or sizes.seeds, rows or sizes.rows, sizes.epochs, sizes.bits, sizes.parties)
    made_on, made_of = machine(), commit()
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    for case in _cases(sizes):
        found = _train(case, sizes, progress)
        results += list(_rows(case, found))
        ratios |= dict(_ratios(case, found))
    return Report("bits", _question(sizes), results, ratios, made_on, made_of)


def _question(sizes: Sizes) -> str:
    return (
        f"What do few bits cost and save? {sizes.epochs} epochs, {sizes.seeds} seeds, a9a, and {sizes.rows:,} rows of "
        f"the app store's twin and of NYC flights (where installed), predictions in messages of "
        f"{', '.join(map(str, sizes.bits))} bits, a plain server. Bytes are of all parties' pushes and totals together."
    )


def _cases(sizes: Sizes) -> Iterator[Case]:
    for parties in sizes.parties:
        for model in ("LR", "NN"):
            yield Case(f"a9a, {parties} parties, {model}", partial(a9a_of, parties), _contender(model, sizes, 0.5))
            rate = 0.1 if model == "LR" else 1.0
            twin = partial(twin_of, sizes.rows, parties)
            yield Case(f"app store, {parties} parties, {model}", twin, _contender(model, sizes, rate))
            if has_package(MODULE):
                flights = partial(flights_of, sizes.rows, parties)
                yield Case(f"NYC flights, {parties} parties, {model}", flights, _contender(model, sizes, 0.1))


def _contender(model: str, sizes: Sizes, rate: float) -> Contender:
    kind = _settings_of(model)
    training = TrainingSettings(
        epochs=sizes.epochs, batch_size=_BATCH, batches_per_block=16, learning_rate=rate, lookahead=1
    )
    return Contender(model, training, {"p": kind})


def _settings_of(model: str) -> ModelSettings:
    if model == "LR":
        return model_settings("linear", optimizer="sgd", l2=3e-4)
    return model_settings("mlp", hidden=(64,), optimizer="sgd", l2=1e-3)


def a9a_of(parties: int) -> JointDataset:
    """a9a with its columns in 2 or 3 runs."""
    data, names = a9a(), [f"p{number}" for number in range(parties)]
    if data.test is None:
        raise FdmlError("the bundled a9a has no test rows; install fdml again")
    train, test = partition(data.train, _GROUPS[parties]), partition(data.test, _GROUPS[parties])
    tables = {name: PartyData(train[at], test[at]) for at, name in enumerate(names)}
    return build_dataset(tables, names[0], "binary", "logistic", holdout=0.5, seed=0)


def twin_of(rows: int, parties: int) -> JointDataset:
    """The app store's twin with its first 2 or 3 parties."""
    store, names = AppStore(rows), APPS[:parties]
    parts: dict[str, list[Any]] = {name: [] for name in names}
    for chunk in range(store.chunks):
        for name in names:
            held = store.part(name, chunk)
            parts[name].append(held.take(np.flatnonzero(held.numbers >= 0)))
    labels = np.concatenate([part.labels for part in parts[names[0]]]).astype(np.float64)
    tests = np.concatenate([part.tests for part in parts[names[0]]])
    everything = RowSet({name: vstack([part.rows for part in parts[name]]) for name in names}, labels, np.ones(rows))
    train, test = everything.take(np.flatnonzero(~tests)), everything.take(np.flatnonzero(tests))
    return JointDataset(names[0], fit_labels("binary", train.labels, None), "logistic", train, test)


def flights_of(rows: int, parties: int) -> JointDataset:
    """NYC flights with its first 2 or 3 parties, a fifth of the rows held out."""
    flights = nyc_flights().joined()
    some = flights.first(min(rows, flights.rows), seed=7)
    held = {name: each.encoded() for name, each in list(some.parties.items())[:parties]}
    return build_dataset(held, flights.label_party, "binary", "logistic", holdout=0.2, seed=7)


def has_package(module: str) -> bool:
    """Whether the package of a sample data set is installed."""
    return importlib.util.find_spec(module) is not None


def _train(case: Case, sizes: Sizes, progress: Progress) -> dict[int, list[Outcome]]:
    problem = case.problem()
    models = dict.fromkeys(problem.train.parts, case.contender.models["p"])
    found: dict[int, list[Outcome]] = {bits: [] for bits in sizes.bits}
    for seed in range(sizes.seeds):
        mixed = problem.shuffled(seed)
        for bits in sizes.bits:
            progress(f"{case.name}, {bits} bits, seed {seed + 1} of {sizes.seeds}")
            training = case.contender.training.model_copy(update={"value_bits": bits})
            plan = joint_plan(mixed, Contender(case.contender.name, training, models), seed)
            traffic = Traffic(plan, len(mixed.train), mixed.objective.width)
            result = train_in_process(plan, mixed.train, in_turns=True, tap=traffic.take)
            score = result.score(mixed.test.parts)
            found[bits].append(Outcome(auc(mixed.test.labels, score[:, 0], mixed.test.weights), traffic))
    return found


def _rows(case: Case, found: Mapping[int, Sequence[Outcome]]) -> Iterator[dict[str, Any]]:
    for bits, outcomes in found.items():
        yield row(f"{case.name}, {bits} bits: AUC", [each.auc for each in outcomes], "test AUC")
        first = mean(each.traffic.first for each in outcomes) / 1e3
        pushed = mean(each.traffic.pushed[1:].mean() for each in outcomes) / 1e3
        yield {
            **row(f"{case.name}, {bits} bits: an epoch", [each.traffic.each / 1e3 for each in outcomes], "kB"),
            "first epoch": round(first, 1),
            "later epoch, pushes": round(float(pushed), 1),
            "later epoch, all": round(mean(each.traffic.later for each in outcomes) / 1e3, 1),
        }


def _ratios(case: Case, found: Mapping[int, Sequence[Outcome]]) -> Iterator[tuple[str, dict[str, Any]]]:
    exact = found[64]
    for bits, outcomes in found.items():
        if bits == 64:
            continue
        gained = [few.auc - all_.auc for few, all_ in zip(outcomes, exact, strict=True)]
        less = [all_.traffic.later / few.traffic.later for few, all_ in zip(outcomes, exact, strict=True)]
        bars = ({"target": -MOST_LOST}, {"target": _TEN_TIMES}) if bits == 4 else ({}, {})
        yield f"{case.name}: AUC of {bits} bits less that of 64", {**spread(gained), "mean": mean(gained), **bars[0]}
        yield f"{case.name}: bytes of a later epoch, 64/{bits} bits", {**spread(less), **bars[1]}
