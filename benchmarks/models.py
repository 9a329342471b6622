"""What do stronger joint models bring? Alone, late fusion, pooled and joint by every joint function, on six data sets.

No setting is chosen by test rows: all are the defaults, but those that a line names, and were found on validation rows
(docs/decisions/0034). NYC flights has no test rows of its own; those that are reported are the same for all seeds. The
last choice of step and L2 left them out, earlier ones may have seen some of them. To add a model, add a `Scheme`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Any

from benchmarks.bits import a9a_of, has_package, twin_of
from benchmarks.cross_party import cross_party_xor
from benchmarks.encoded import EncodedProblem
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, Work, measure, ratio, row, spread
from benchmarks.trees import CASES, pooled_scores
from fdml.data.samples.sample_dataset import SampleDataset
from fdml.experiments.dataset import JointDataset
from fdml.experiments.in_process import TrainingResult, train_in_process
from fdml.models.calibration import calibrate
from fdml.models.losses import Floats
from fdml.models.metrics import metric
from fdml.party.plan import Plan, joint_score
from fdml.settings import TrainingSettings

_ROWS = 500_000
_TIMED_EPOCHS, _ROUNDS = 2, 3
LIGHTGBM = "LightGBM"
"""Not a kind of fdml: what LightGBM reaches with all columns in one place."""
Load = Callable[[int], EncodedProblem]
"""The data set of a seed."""
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

    def score(self, problem: EncodedProblem, seed: int) -> Floats:
        """The scores of the test rows."""
        if self.kind == LIGHTGBM:
            return pooled_scores(problem.for_trees())[:, None]
        whole = problem.rows_for(self.kind)
        if self.where == "late fusion":
            return self._fused(problem, whole, seed)
        part = {"alone": lambda: whole.only(whole.label_party), "pooled": whole.pooled}.get(self.where, lambda: whole)()
        return self._trained(problem, part, seed).score(part.test.parts)

    def _trained(self, problem: EncodedProblem, part: JointDataset, seed: int, **training: Any) -> TrainingResult:
        models = {name: problem.model(self.kind, name, **self.model) for name in part.train.parts}
        settings = TrainingSettings(seed=seed, **self.training, **training)
        plan = Plan(settings, models, part.label_party, part.loss, part.encoding.class_count)
        return train_in_process(plan, part.train)

    def _fused(self, problem: EncodedProblem, whole: JointDataset, seed: int) -> Floats:
        """Every party alone; the sum of their scores is recalibrated on the training rows."""
        models = {name: self._trained(problem, whole.only(name), seed).models[name] for name in whole.train.parts}
        trained = joint_score(models, whole.train.parts, whole.objective)
        found = calibrate(whole.loss, trained, whole.train)
        return found.apply(joint_score(models, whole.test.parts, whole.objective))

    def timed(self, problem: JointDataset) -> Work:
        """Training in this process, whose units are epochs."""

        def work() -> float:
            self._trained(EncodedProblem(problem), problem, 0, epochs=_TIMED_EPOCHS)
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
    "NN head, averaged": Scheme("mlp", training=HEAD, model={"average": 0.999}),
    "NN pooled": Scheme("mlp", "pooled"),
    "trees sum": Scheme("trees"),
    "trees+NN sum": Scheme("trees+mlp"),
    "trees+NN fm": Scheme("trees+mlp", training=FM),
    "trees+NN fm, 16 numbers": Scheme("trees+mlp", training={**FM, "joint_width": 16}),
    "LightGBM pooled": Scheme(LIGHTGBM, "pooled"),
}
TIMED = ("NN sum", "NN fm", "NN head", "trees sum")
TWIN = "app-store twin"
TWIN_SCHEMES = ("NN alone", *TIMED, "NN pooled")
GOALS: dict[str, dict[str, float]] = {
    "a9a": {"LR fm": 0.9042, "NN head": 0.9040, "NN head, averaged": 0.9040},
    "NYC flights": {"NN fm": 0.775, "trees sum": 0.777, "trees+NN fm": 0.786},
    "census-income": {"trees+NN fm": 0.954},
    "raw Adult": {"trees sum": 0.9250, "trees+NN fm": 0.9260},
    "cross-party XOR": {"NN fm": 0.85, "NN head": 0.87},
}
"""Mean test AUC that was aimed at."""
SUM_AT_MOST = 0.70
"""What a sum may reach of cross-party XOR, or it would not need what two parties hold together."""


def sets_of() -> dict[str, Load]:
    """The data sets by name; those whose package is not installed are left out."""
    found: dict[str, Load] = {
        "cross-party XOR": lambda seed: EncodedProblem(cross_party_xor(seed).shuffled(seed)),
        "a9a": lambda seed: EncodedProblem(a9a_of(2).shuffled(seed)),
    }
    for name, case in CASES.items():
        if has_package(case.package):
            found[name] = partial(_of_sample, case.load)
    return found


def _of_sample(load: Callable[[], SampleDataset], seed: int) -> EncodedProblem:
    return EncodedProblem.of(load(), seed)


def run(progress: Progress, seeds: int = 3, rows: int = _ROWS, only: str = "") -> Report:
    """Train with every seed what `only` names, then time epochs; the app store's twin has so many `rows`, and one seed.

    Names are like "NYC flights, NN fm". Several are given between semicolons; each stands for all that have it in them,
    or for one line where it is that line's whole name.
    """
    made_on, made_of = machine(), commit()
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    for name, load in (sets_of() | {TWIN: partial(_twin, rows)}).items():
        known = [who for who in SCHEMES if name != TWIN or who in TWIN_SCHEMES]
        lines = [f"{name}, {who}" for who in known]
        schemes = {who: SCHEMES[who] for who, line in zip(known, lines, strict=True) if is_wanted(only, line, lines)}
        if not schemes:
            continue
        figures = _figures(name, load, schemes, 1 if name == TWIN else seeds, progress)
        results += [row(f"{name}, {who}", each, "test AUC") for who, each in figures.items()]
        for who, bar in _bars(name).items():
            if who in figures:
                ratios[f"{name}: {who}, mean"] = {**spread(figures[who]), "mean": mean(figures[who]), **bar}
    if is_wanted(only, f"{TWIN}, times"):
        timed, found = _times(rows, progress)
        results += timed
        ratios |= found
    question = (
        f"What do stronger joint models bring over a sum? Test AUC, {seeds} seeds, every setting at its default; the "
        f"app store's twin has {rows:,} rows, 3 parties and one seed"
    )
    return Report("models", question, results, ratios, made_on, made_of)


def is_wanted(only: str, name: str, names: Iterable[str] = ()) -> bool:
    """Whether `only` asks for this one of these names."""
    parts = [part.strip() for part in only.split(";")]
    return any(part == name if part in names else part in name for part in parts)


def _bars(name: str) -> dict[str, dict[str, float]]:
    """What the schemes of a data set have to reach, or to stay below."""
    bars = {who: {"at_least": goal} for who, goal in GOALS.get(name, {}).items()}
    return bars | ({"NN sum": {"at_most": SUM_AT_MOST}} if name == "cross-party XOR" else {})


def _twin(rows: int, seed: int) -> EncodedProblem:
    return EncodedProblem(twin_of(rows, 3).shuffled(seed))


def _figures(
    name: str, load: Load, schemes: Mapping[str, Scheme], seeds: int, progress: Progress
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {who: [] for who in schemes}
    for seed in range(seeds):
        problem = load(seed)
        for who, scheme in schemes.items():
            whole = problem.whole
            figure = metric(whole.encoding.task, scheme.score(problem, seed), whole.test, whole.loss)
            found[who].append(float("nan") if figure is None else float(figure))
            progress(f"{name}, seed {seed}, {who}: {found[who][-1]:.4f}")
    return found


def _times(rows: int, progress: Progress) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Seconds of an epoch by joint function, in turns, and their ratio to the sum's."""
    problem = twin_of(rows, 3)
    progress(f"{TWIN}, times")
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
