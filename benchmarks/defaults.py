"""Does a user who changes nothing get what an expert would get? Joint training beside scikit-learn's pooled models.

Every setting of fdml is its default. scikit-learn's LogisticRegression, Ridge and MLPClassifier have theirs, and see
the same encoded rows in one place. No epoch is chosen by test rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor

from benchmarks.default_sets import Load, all_sets
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from fdml.data.rows import Rows, SparseRows, to_dense, to_scipy
from fdml.experiments.dataset import JointDataset
from fdml.experiments.in_process import train_in_process
from fdml.models.metrics import metric
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.settings import TrainingSettings

BARS = {"LR": 0.003, "NN": 0.005}
"""How far below pooled a joint model may be."""
_KINDS = {"LR": "linear", "NN": "mlp"}
_MOST_ROWS = 60_000
"""More take scikit-learn's net too long."""
_MOST_ROWS_OF_SUM = 300_000
_ROWS = 500_000


def run(progress: Progress, seeds: int = 3, rows: int = _ROWS, only: str = "") -> Report:
    """Train on every data set with every seed, or on those that have `only` in their names."""
    made_on, made_of = machine(), commit()
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    for name, load in {name: load for name, load in all_sets(rows).items() if only in name}.items():
        for model in _KINDS:
            progress(f"{name}, {model}")
            found = list(_figures(load, model, range(seeds)))
            for who in found[0]:
                results.append(row(f"{name}, {model}, {who}", [each[who] for each in found], "metric of test rows"))
            for who in [other for other in found[0] if other != "joint"]:
                gaps = [each["joint"] - each[who] for each in found]
                ratios[f"{name}, {model}: joint less {who}"] = {
                    **spread(gaps), "mean": mean(gaps), "at_least": -BARS[model]
                }  # fmt: skip
    question = (
        f"How good is joint training with every setting at its default? {seeds} seeds; AUC of two classes, accuracy of "
        f"more, R2 of a regression; scikit-learn's models are pooled and have their defaults"
    )
    return Report("defaults", question, results, ratios, made_on, made_of)


def _figures(load: Load, model: str, seeds: Sequence[int]) -> Iterator[dict[str, float]]:
    for seed in seeds:
        problem = load(seed).shuffled(seed)
        found = {"joint": trained(problem, model, seed)}
        if model == "NN":
            found["pooled NN"] = trained(problem.pooled(), model, seed)
        if model == "NN" and len(problem.train) <= _MOST_ROWS_OF_SUM:
            found["sum of NNs, pooled"] = trained(problem, model, seed, batches_per_block=1, lookahead=0)
        if model == "LR" or len(problem.train) <= _MOST_ROWS:
            found["scikit-learn"] = scikit_learn(problem, model, seed)
        yield found


def trained(problem: JointDataset, model: str, seed: int, **settings: int) -> float:
    """The metric of a training in this process, with no setting but the seed and those given.

    With one batch per block and no lookahead it is what Adam in one place makes of the sum of the parties' models: a
    sum has no interactions between features of different parties, so pooled models may be better than any sum.
    """
    models = dict.fromkeys(problem.train.parts, model_settings(_KINDS[model]))
    plan = Plan(
        TrainingSettings(seed=seed, **settings), models, problem.label_party, problem.loss, problem.encoding.class_count
    )
    score = train_in_process(plan, problem.train).score(problem.test.parts)
    return _metric(problem, score)


def scikit_learn(problem: JointDataset, model: str, seed: int) -> float:
    """The metric of scikit-learn's model of the same rows in one place."""
    pooled, task = problem.pooled(), problem.encoding.task
    if model == "LR":
        fitted = Ridge() if task == "regression" else LogisticRegression(max_iter=1000)
    else:
        fitted = MLPRegressor(random_state=seed) if task == "regression" else MLPClassifier(random_state=seed)
    fitted.fit(_matrix(pooled.train.parts["pooled"]), pooled.train.labels)
    test = _matrix(pooled.test.parts["pooled"])
    if task == "regression":
        return _metric(problem, np.asarray(fitted.predict(test)).reshape(-1, 1))
    chances = np.log(np.clip(fitted.predict_proba(test).astype(np.float64), 1e-300, None))
    return _metric(problem, chances[:, 1:] - chances[:, :1] if task == "binary" else chances)


def _metric(problem: JointDataset, score: Any) -> float:
    found = metric(problem.encoding.task, score, problem.test, problem.loss)
    return float("nan") if found is None else float(found)


def _matrix(rows: Rows) -> Any:
    return to_scipy(rows) if isinstance(rows, SparseRows) else to_dense(rows)
