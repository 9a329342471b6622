"""How fast the compiled kernels train, beside torch and scikit-learn on the same sparse rows and one thread.

What is timed: fdml's `Model.learn`, block after block, over updates made
beforehand; torch's update, batch after batch, over index tensors made
beforehand; scikit-learn's `partial_fit`, one pass. "fdml linear, whole step" also
makes each update (the order of its rows) and each push (the prediction of its
block) inside the time, as a party of a run does. torch is timed with sparse and
with dense gradients, scikit-learn with and without its shuffle, and the ratios
are to the faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines import ScikitLearn, torch_work
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, Timing, Work, fastest, measure, ratio
from benchmarks.torch_baselines import Trainer, batches_of, one_thread
from fdml.data.rows import SparseRows
from fdml.models.compiled import CompiledModel
from fdml.models.kind import ModelSpec
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings
from fdml.models.signals import BlockUpdate, Scores
from fdml.protocol.schedule import Schedule, schedule_for

KINDS = ("linear", "fm", "mlp")
Update = tuple[BlockUpdate, Scores]
_OBJECTIVE = objective_for("logistic", 2)
TARGETS = {"linear torch/fdml time": 15.0, "mlp torch/fdml time": 4.0, "linear scikit-learn/fdml time": 1.0}
UNIT = "us per batch"
_WHOLE_STEP = "fdml linear, whole step"
_RATE = 0.1
_L2 = 1e-4
_SEED = 7


@dataclass(frozen=True)
class Sizes:
    """How much is trained; the rows are meant to be larger than the processor's cache."""

    rows: int = 160_000
    width: int = 8_700
    entries: int = 60
    """Features of a row that are not zero."""
    batch_size: int = 100
    batches_per_block: int = 16
    factors: int = 8
    hidden: int = 64
    torch_batches: int = 200
    """Batches that torch, being slow, trains per round; the next round goes on from there."""
    rounds: int = 11


def run(progress: Progress, sizes: Sizes | None = None) -> Report:
    """Time all contenders in turn."""
    sizes = sizes or Sizes()
    found = machine()
    progress(f"making {sizes.rows:,} rows")
    rows, labels = sparse_dataset(sizes)
    with one_thread():
        timings = measure(_contenders(sizes, rows, labels), sizes.rounds, progress=progress)
    return Report(
        "kernels",
        _question(sizes),
        [timing.row(UNIT, 1e6, batch_size=sizes.batch_size) for timing in timings.values()],
        _ratios(timings),
        found,
        commit(),
    )


def _question(sizes: Sizes) -> str:
    return (
        f"How long does an update with {sizes.batch_size} sparse rows take, beside torch and scikit-learn? "
        f"({sizes.rows:,} rows with {sizes.entries} of {sizes.width:,} features; "
        f"FM with {sizes.factors} factors, MLP with {sizes.hidden} hidden units)"
    )


def sparse_dataset(sizes: Sizes) -> tuple[SparseRows, NDArray[np.float64]]:
    """Rows with the same number of entries each, at random distinct features, and binary labels to learn."""
    random = np.random.default_rng(_SEED)
    free = random.integers(0, sizes.width - sizes.entries + 1, (sizes.rows, sizes.entries))
    indices = (np.sort(free, axis=1) + np.arange(sizes.entries)).astype(np.int32)
    values = random.standard_normal((sizes.rows, sizes.entries), np.float32) / np.float32(np.sqrt(sizes.entries))
    truth = random.standard_normal(sizes.width)
    labels = (np.einsum("ij,ij->i", values, truth[indices]) > 0.0).astype(np.float64)
    indptr = np.arange(0, indices.size + 1, sizes.entries)
    return SparseRows(indptr, indices.ravel(), values.ravel(), sizes.width), labels


def model_of(kind: str, sizes: Sizes) -> CompiledModel:
    """A model as a party builds it, trained by plain SGD."""
    every: dict[str, dict[str, Any]] = {"fm": {"factors": sizes.factors}, "mlp": {"hidden": (sizes.hidden,)}}
    spec = ModelSpec(inputs=sizes.width, width=1, bias=True, key=(_SEED, kind))
    return cast(CompiledModel, build_model(model_settings(kind, optimizer="sgd", l2=_L2, **every.get(kind, {})), spec))


def schedule_of(sizes: Sizes) -> Schedule:
    """One epoch over all rows."""
    return schedule_for(sizes.rows, sizes.batch_size, sizes.batches_per_block, 1, 1, _SEED)


def update_of(schedule: Schedule, step: int, labels: NDArray[np.float64], own: NDArray[Any]) -> Update:
    """What a party that holds all features learns from at a step: the total is its own prediction."""
    visit = schedule.visit(step)
    batch_bounds = schedule.batch_bounds(visit)
    rates = np.full(len(batch_bounds) - 1, _RATE)
    mine = labels[visit.start : visit.stop]
    block = BlockUpdate(visit.start, schedule.order(visit, 0), batch_bounds, rates)
    return block, Scores(own, own, mine, np.ones_like(mine), 1.0, _OBJECTIVE)


def updates_of(schedule: Schedule, labels: NDArray[np.float64]) -> list[Update]:
    """All updates of an epoch, each with arrays of its own as in a run."""
    sizes = [schedule.visit(step).size for step in range(schedule.steps)]
    return [update_of(schedule, step, labels, np.zeros((size, 1), np.float32)) for step, size in enumerate(sizes)]


def trainer_of(model: CompiledModel, kind: str, sizes: Sizes, *, sparse: bool) -> Trainer:
    """The model's twin in torch, with the parameters it has now."""
    return Trainer(kind, model.parameters, sizes.width, sparse=sparse, rate=_RATE, l2=_L2)


def _contenders(sizes: Sizes, rows: SparseRows, labels: NDArray[np.float64]) -> dict[str, Work]:
    schedule = schedule_of(sizes)
    updates = updates_of(schedule, labels)
    batches = batches_of(rows, updates)
    contenders: dict[str, Work] = {}
    for kind in KINDS:
        model = model_of(kind, sizes)
        contenders[f"fdml {kind}"] = _ours(model, rows, updates)
        for name, sparse in (("sparse", True), ("dense", False)):
            twin = trainer_of(model, kind, sizes, sparse=sparse)
            contenders[f"torch {kind}, {name} gradients"] = torch_work(twin, batches, sizes.torch_batches)
    contenders[_WHOLE_STEP] = _whole_steps(model_of("linear", sizes), rows, labels, schedule)
    contenders["scikit-learn linear, shuffled"] = _sklearn(rows, labels, sizes, shuffle=True)
    contenders["scikit-learn linear, in order"] = _sklearn(rows, labels, sizes, shuffle=False)
    return contenders


def _ours(model: CompiledModel, rows: SparseRows, updates: Sequence[Update]) -> Work:
    def work() -> float:
        for block, scores in updates:
            model.learn(rows, block, scores)
        return sum(len(block.rates) for block, _ in updates)

    return work


def _whole_steps(model: CompiledModel, rows: SparseRows, labels: NDArray[np.float64], schedule: Schedule) -> Work:
    def work() -> float:
        for step in range(schedule.steps):
            visit = schedule.visit(step)
            own = model.predict(rows, visit.start, visit.stop)
            model.learn(rows, *update_of(schedule, step, labels, own))
        return schedule.updates

    return work


def _sklearn(rows: SparseRows, labels: NDArray[np.float64], sizes: Sizes, *, shuffle: bool) -> Work:
    baseline = ScikitLearn(rows, labels, rate=_RATE, l2=_L2, shuffle=shuffle)

    def work() -> float:
        baseline.epoch()
        return sizes.rows / sizes.batch_size

    return work


def _ratios(timings: dict[str, Timing]) -> dict[str, dict[str, Any]]:
    """Each baseline's faster form over fdml: how many times as fast fdml is."""
    pairs = {f"{kind} torch/fdml time": (f"torch {kind}, ", f"fdml {kind}") for kind in KINDS} | {
        "linear scikit-learn/fdml time": ("scikit-learn linear, ", "fdml linear"),
        "linear torch/fdml whole step time": ("torch linear, ", _WHOLE_STEP),
    }
    ratios: dict[str, dict[str, Any]] = {}
    for name, (baseline, ours) in pairs.items():
        quickest = fastest(*[timing for each, timing in timings.items() if each.startswith(baseline)])
        facts = {"target": TARGETS[name]} if name in TARGETS else {}
        ratios[name] = asdict(ratio(quickest, timings[ours])) | facts | {"baseline": quickest.contender}
    return ratios
