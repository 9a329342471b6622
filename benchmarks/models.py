"""What do stronger joint models bring? Alone, late fusion, pooled and joint by every joint function, on four data sets.

No setting is chosen by test rows: all are the defaults, which were found on validation rows (docs/decisions/0034). To
add a model, add a `Scheme`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from benchmarks.bits import twin_of
from benchmarks.cross_party import cross_party_xor
from benchmarks.default_sets import Load, all_sets
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, Work, measure, ratio, row, spread
from fdml.experiments.dataset import JointDataset
from fdml.experiments.in_process import TrainingResult, train_in_process
from fdml.models.calibration import calibrate
from fdml.models.losses import Floats
from fdml.models.metrics import metric
from fdml.models.registry import model_settings
from fdml.party.plan import Plan, joint_score
from fdml.settings import TrainingSettings

_ROWS = 500_000
_TIMED_EPOCHS, _ROUNDS = 2, 3
AT_MOST = 1.5
"""Times the seconds of an epoch of a sum that `fm` with 8 numbers may take."""


@dataclass(frozen=True)
class Scheme:
    """One line of the table: a kind of model, where its features are, and settings that are not the defaults."""

    kind: str
    where: str = "joint"
    """"alone" (the label party), "late fusion", "pooled" or "joint"."""
    training: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)

    def score(self, problem: JointDataset, seed: int) -> Floats:
        """The scores of the test rows."""
        if self.where == "late fusion":
            return self._fused(problem, seed)
        part = {"alone": lambda: problem.only(problem.label_party), "pooled": problem.pooled}.get(
            self.where, lambda: problem
        )()
        return self._trained(part, seed).score(part.test.parts)

    def _trained(self, part: JointDataset, seed: int, **training: Any) -> TrainingResult:
        models = dict.fromkeys(part.train.parts, model_settings(self.kind, **self.model))
        settings = TrainingSettings(seed=seed, **self.training, **training)
        plan = Plan(settings, models, part.label_party, part.loss, part.encoding.class_count)
        return train_in_process(plan, part.train)

    def _fused(self, problem: JointDataset, seed: int) -> Floats:
        """Every party alone; the sum of their scores is recalibrated on the training rows."""
        models = {name: self._trained(problem.only(name), seed).models[name] for name in problem.train.parts}
        trained = joint_score(models, problem.train.parts, problem.objective)
        found = calibrate(problem.loss, trained, problem.train)
        return found.apply(joint_score(models, problem.test.parts, problem.objective))

    def timed(self, problem: JointDataset) -> Work:
        """Training in this process, whose units are epochs."""

        def work() -> float:
            self._trained(problem, 0, epochs=_TIMED_EPOCHS)
            return _TIMED_EPOCHS

        return work


FM, HEAD = {"joint": "fm"}, {"joint": "head"}
SCHEMES: dict[str, Scheme] = {
    "LR alone": Scheme("linear", "alone"),
    "NN alone": Scheme("mlp", "alone"),
    "NN late fusion": Scheme("mlp", "late fusion"),
    "LR sum": Scheme("linear"),
    "LR fm": Scheme("linear", training=FM),
    "FM pooled": Scheme("linear", "pooled", training=FM),
    "NN sum": Scheme("mlp"),
    "NN fm": Scheme("mlp", training=FM),
    "NN fm, 16 numbers": Scheme("mlp", training={**FM, "joint_width": 16}),
    "NN head": Scheme("mlp", training=HEAD),
    "NN pooled": Scheme("mlp", "pooled"),
}
TIMED = ("NN sum", "NN fm", "NN head")
GOALS: dict[str, dict[str, float]] = {
    "a9a": {"LR fm": 0.9042, "NN head": 0.9040},
    "NYC flights": {"NN fm": 0.775},
    "cross-party XOR": {"NN fm": 0.85, "NN head": 0.87},
}
"""Mean test AUC that was aimed at."""


def sets_of(rows: int) -> dict[str, Load]:
    """The data sets by name; those whose package is not installed are left out."""
    known = all_sets(rows)
    found: dict[str, Load] = {"cross-party XOR": cross_party_xor}
    return found | {name: known[name] for name in ("a9a", "census-income", "NYC flights") if name in known}


def run(progress: Progress, seeds: int = 3, rows: int = _ROWS, only: str = "") -> Report:
    """Train every scheme with every seed on the sets that have `only` in their names; then time epochs.

    `rows` of the app store's twin are trained on to find how long an epoch takes.
    """
    made_on, made_of = machine(), commit()
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    for name, load in sets_of(rows).items():
        if only not in name:
            continue
        figures = _figures(name, load, seeds, progress)
        results += [row(f"{name}, {who}", each, "test AUC") for who, each in figures.items()]
        for who, goal in GOALS.get(name, {}).items():
            ratios[f"{name}: {who}, mean"] = {**spread(figures[who]), "mean": mean(figures[who]), "at_least": goal}
    if only in "app store":
        timed, found = _times(rows, progress)
        results += timed
        ratios |= found
    question = f"What do stronger joint models bring over a sum? Test AUC, {seeds} seeds, every setting at its default"
    return Report("models", question, results, ratios, made_on, made_of)


def _figures(name: str, load: Load, seeds: int, progress: Progress) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {who: [] for who in SCHEMES}
    for seed in range(seeds):
        problem = load(seed).shuffled(seed)
        for who, scheme in SCHEMES.items():
            figure = metric(problem.encoding.task, scheme.score(problem, seed), problem.test, problem.loss)
            found[who].append(float("nan") if figure is None else float(figure))
            progress(f"{name}, seed {seed}, {who}: {found[who][-1]:.4f}")
    return found


def _times(rows: int, progress: Progress) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Seconds of an epoch by joint function, in turns, and their ratio to the sum's."""
    problem = twin_of(rows, 3)
    works: dict[str, Callable[[], float]] = {who: SCHEMES[who].timed(problem) for who in TIMED}
    timings = measure(works, _ROUNDS, progress=progress)
    lines = [timings[who].row("s per epoch", 1.0) for who in TIMED]
    ratios = {}
    for who in TIMED[1:]:
        found = ratio(timings[who], timings[TIMED[0]])
        bar = {"at_most": AT_MOST} if who == "NN fm" else {}
        ratios[f"epoch of {who} over {TIMED[0]}"] = {
            "median": found.median, "min": found.min, "max": found.max, **bar
        }  # fmt: skip
    return lines, ratios
