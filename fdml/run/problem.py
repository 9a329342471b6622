"""Data of all parties, joined and split: what the schemes of a comparison train on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdml.align.plain import shared_rows
from fdml.data.rows import Rows, side_by_side, take, width
from fdml.data.split import shuffled_rows as shuffled_rows
from fdml.data.split import split_rows
from fdml.data.table import PartyData, Table
from fdml.errors import DataError, LabelError
from fdml.run.labels import LabelCode, learn_code
from fdml.settings import Loss, Task, loss_for


@dataclass(frozen=True)
class Sample:
    """Rows that all parties hold, in one order."""

    parts: Mapping[str, Rows]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    """Mean 1."""

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: NDArray[np.int64]) -> Sample:
        """The rows with these numbers, in this order."""
        parts = {name: take(rows, index) for name, rows in self.parts.items()}
        return Sample(parts, self.labels[index], self.weights[index])

    def only(self, party: str) -> Sample:
        """The same rows with one party's features."""
        return Sample({party: self.parts[party]}, self.labels, self.weights)

    def pooled(self, name: str) -> Sample:
        """The same rows with all features at one party."""
        return Sample({name: side_by_side(list(self.parts.values()))}, self.labels, self.weights)


@dataclass(frozen=True)
class Problem:
    """Training and test rows of all parties, and what is to be predicted."""

    label_party: str
    code: LabelCode
    loss: Loss
    train: Sample
    test: Sample

    def only(self, party: str) -> Problem:
        """What one party would train on alone."""
        return Problem(party, self.code, self.loss, self.train.only(party), self.test.only(party))

    def pooled(self) -> Problem:
        """What one place would train on that had all features."""
        name = "pooled"
        return Problem(name, self.code, self.loss, self.train.pooled(name), self.test.pooled(name))

    def shuffled(self, seed: int) -> Problem:
        """The training rows in an order drawn from the seed."""
        order = shuffled_rows(len(self.train), seed)
        return Problem(self.label_party, self.code, self.loss, self.train.take(order), self.test)


def pose(
    data: Mapping[str, PartyData], label_party: str, task: Task, loss: Loss | None, holdout: float, seed: int
) -> Problem:
    """Join the parties' tables; rows are held out for testing unless every party brings test rows."""
    _check(data, label_party)
    tables = {name: each.train for name, each in data.items()}
    joined = _joined(tables)
    tests = {name: each.test for name, each in data.items() if each.test is not None}
    if tests and len(tests) < len(data):
        missing = next(name for name in data if name not in tests)
        raise DataError(f"party {missing!r} has no test rows but {next(iter(tests))!r} has; set data.test_path at all")
    if tests:
        train, test = joined, _joined(tests)
    else:
        train, test = _split(joined, holdout, seed)
    labels = train[label_party].labels
    held_out = test[label_party].labels
    if labels is None or held_out is None:
        raise LabelError(f"label party {label_party!r} has no labels; set data.label to its label column")
    code = learn_code(task, labels, train[label_party].weights)
    return Problem(
        label_party,
        code,
        loss_for(task, loss),
        _sample(train, code.numbers(labels), train[label_party].weights),
        _sample(test, code.numbers(held_out), test[label_party].weights),
    )


def _check(data: Mapping[str, PartyData], label_party: str) -> None:
    for name, each in data.items():
        if len(each.train) == 0:
            raise DataError(f"party {name!r} has no rows; check data.path")
        if width(each.train.rows) == 0 and name != label_party:
            raise DataError(f"party {name!r} has no features; only the label party may have none")


def _joined(tables: Mapping[str, Table]) -> dict[str, Table]:
    return {name: tables[name].take(index) for name, index in shared_rows(tables).items()}


def _split(tables: Mapping[str, Table], holdout: float, seed: int) -> tuple[dict[str, Table], dict[str, Table]]:
    rows = len(next(iter(tables.values())))
    keep, out = split_rows(rows, holdout, seed)
    return (
        {name: table.take(keep) for name, table in tables.items()},
        {name: table.take(out) for name, table in tables.items()},
    )


def _sample(tables: Mapping[str, Table], labels: NDArray[np.float64], weights: NDArray[np.float64] | None) -> Sample:
    return Sample({name: table.rows for name, table in tables.items()}, labels, mean_one(weights, len(labels)))


def mean_one(weights: NDArray[np.float64] | None, rows: int) -> NDArray[np.float64]:
    """Row weights scaled to mean 1, so that they do not change the step size; all 1 where none are given."""
    if weights is None:
        return np.ones(rows)
    total = float(weights.sum())
    if total <= 0.0:
        raise DataError("all row weights are zero; give at least one row a weight")
    return weights * (rows / total)
