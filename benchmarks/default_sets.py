"""Data sets of many kinds, each as the parties of a run would have it: for the benchmark `defaults`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.bits import a9a_of, flights_of, has_package, twin_of
from fdml.data.label_encoding import fit_labels
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows, columns
from fdml.data.samples.nyc_flights import MODULE as FLIGHTS_MODULE
from fdml.data.samples.registry import SAMPLES
from fdml.errors import MissingExtra
from fdml.experiments.dataset import JointDataset, build_dataset
from fdml.settings.choices import Task
from fdml.settings.losses import loss_for

Load = Callable[[int], JointDataset]
"""The data set of a seed."""
_ALL_FLIGHTS = 10**6


def split(X: Any, y: NDArray[Any], task: Task, seed: int, parties: int = 2) -> JointDataset:
    """A quarter of the rows to test on, the columns cut into equal runs; dense columns are scaled."""
    own, other = train_test_split(
        np.arange(len(y)), test_size=0.25, random_state=seed, stratify=None if task == "regression" else y
    )
    if not sp.issparse(X):
        X = StandardScaler().fit(X[own]).transform(X)
    encoding = fit_labels(task, y[own], None)
    groups = np.array_split(np.arange(X.shape[1]), parties)

    def rows(index: NDArray[np.int64]) -> RowSet:
        whole = as_rows(X[index])
        parts = {f"p{at}": columns(whole, group) for at, group in enumerate(groups)}
        return RowSet(parts, encoding.transform(y[index]), np.ones(len(index)))

    return JointDataset("p0", encoding, loss_for(task, None), rows(own), rows(other))


def _bundled(load: Callable[..., Any], task: Task, seed: int, parties: int = 2) -> JointDataset:
    X, y = load(return_X_y=True)
    return split(X, y, task, seed, parties)


def _scales(seed: int) -> JointDataset:
    """Columns of sizes from 1e-3 to 1e3."""
    X, y = datasets.make_classification(6000, 30, n_informative=12, n_redundant=6, flip_y=0.05, random_state=seed)
    return split(X * 10.0 ** np.random.default_rng(seed).uniform(-3, 3, 30), y, "binary", seed)


def _rare_ids(seed: int) -> JointDataset:
    """1,000 ids, most of them rare, beside 50 common ones."""
    chance, rows = np.random.default_rng(seed), 40_000
    rare, common = (chance.zipf(1.3, rows) - 1) % 1000, chance.integers(0, 50, rows)
    score = chance.normal(0, 1.2, 1000)[rare] + chance.normal(0, 0.7, 50)[common]
    y = (chance.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int64)
    ones, at = np.ones(rows, np.float32), np.arange(rows)
    X = sp.hstack([sp.csr_array((ones, (at, rare)), (rows, 1000)), sp.csr_array((ones, (at, common)), (rows, 50))])
    return split(X.tocsr(), y, "binary", seed)


def _zeros(seed: int) -> JointDataset:
    """95 % zeros."""
    chance = np.random.default_rng(seed)
    X: Any = sp.random_array((20_000, 400), density=0.05, rng=chance, format="csr", dtype=np.float32)
    y = (chance.random(20_000) < 1 / (1 + np.exp(-2.0 * (X @ chance.normal(size=400))))).astype(np.int64)
    return split(X, y, "binary", seed)


def _correlated(seed: int) -> JointDataset:
    """60 columns that are mixtures of 6."""
    chance = np.random.default_rng(seed)
    hidden = chance.normal(size=(8000, 6))
    X = hidden @ chance.normal(size=(6, 60)) + 0.1 * chance.normal(size=(8000, 60))
    score = hidden @ chance.normal(size=6) + 0.3 * X[:, :10] @ chance.normal(size=10)
    return split(X, (score + chance.logistic(size=8000) > 0).astype(np.int64), "binary", seed)


def _rare_class(seed: int) -> JointDataset:
    """99 rows of one class to 1 of the other."""
    X, y = datasets.make_classification(
        30_000, 20, n_informative=8, weights=[0.99], flip_y=0, class_sep=0.6, random_state=seed
    )
    return split(X, y, "binary", seed)


def _blob(seed: int) -> JointDataset:
    X, y = datasets.make_blobs(500, 10, centers=10, random_state=seed)
    return split(X, y, "multiclass", seed, parties=8)


def _sample(name: str, seed: int) -> JointDataset:
    loaded = SAMPLES[name]()
    return build_dataset(loaded.encoded(), loaded.label_party, "binary", None, holdout=0.2, seed=seed)


def all_sets(rows: int) -> dict[str, Load]:
    """By name; `rows` of the app store's twin. Sets whose package is not installed are left out."""
    small: dict[str, tuple[Callable[..., Any], Task]] = {
        "breast cancer": (datasets.load_breast_cancer, "binary"),
        "digits": (datasets.load_digits, "multiclass"),
        "wine": (datasets.load_wine, "multiclass"),
        "diabetes": (datasets.load_diabetes, "regression"),
    }
    found: dict[str, Load] = {name: partial(_bundled, load, task) for name, (load, task) in small.items()}
    found |= {
        f"{name}, 8 parties": partial(_bundled, load, task, parties=8)
        for name, (load, task) in small.items()
        if name != "digits"
    }
    found |= {
        "blobs, 8 parties": _blob,
        "scales from 1e-3 to 1e3": _scales,
        "1,000 rare ids": _rare_ids,
        "95 % zeros": _zeros,
        "correlated columns": _correlated,
        "99:1 classes": _rare_class,
        "a9a": lambda _: a9a_of(2),
        "raw Adult": partial(_sample, "adult"),
        f"app store's twin, {rows:,} rows": lambda _: twin_of(rows, 3),
    }
    for name in ("census-income", "movielens"):
        if _is_installed(name):
            found[name] = partial(_sample, name)
    if has_package(FLIGHTS_MODULE):
        found["NYC flights"] = lambda _: flights_of(_ALL_FLIGHTS, 3)
    return found


def _is_installed(name: str) -> bool:
    try:
        SAMPLES[name]()
    except MissingExtra:
        return False
    return True
