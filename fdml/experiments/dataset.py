"""Data of all parties, joined and split: what the schemes of a comparison train on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdml.align.local_join import shared_rows
from fdml.align.split import shuffled_rows as shuffled_rows
from fdml.align.split import split_rows
from fdml.data.label_encoding import LabelEncoding, fit_labels
from fdml.data.row_set import RowSet, mean_one
from fdml.data.rows import width
from fdml.data.table import PartyData, Table
from fdml.errors import DataError, LabelError
from fdml.models.losses import loss_named
from fdml.models.objective import Objective, objective_for
from fdml.settings.choices import LossName, Task
from fdml.settings.losses import loss_without_groups


@dataclass(frozen=True)
class JointDataset:
    """Training and test rows of all parties, and what is to be predicted."""

    label_party: str
    encoding: LabelEncoding
    loss: LossName
    train: RowSet
    test: RowSet
    run_seed: int | None = None
    """The seed of a run whose rows these are, in the order that it drew; None where they were joined and split here."""

    @property
    def objective(self) -> Objective:
        """What training lowers."""
        return objective_for(self.loss, self.encoding.class_count)

    def only(self, party: str) -> JointDataset:
        """What one party would train on alone."""
        return JointDataset(party, self.encoding, self.loss, self.train.only(party), self.test.only(party))

    def pooled(self) -> JointDataset:
        """What one place would train on that had all features."""
        name = "pooled"
        return JointDataset(name, self.encoding, self.loss, self.train.pooled(name), self.test.pooled(name))

    def shuffled(self, seed: int) -> JointDataset:
        """The training rows in an order drawn from the seed; those of a run with this seed are in it already."""
        if seed == self.run_seed:
            return self
        order = shuffled_rows(len(self.train), seed)
        return JointDataset(self.label_party, self.encoding, self.loss, self.train.take(order), self.test)


def build_dataset(
    data: Mapping[str, PartyData], label_party: str, task: Task, loss: LossName | None, holdout: float, seed: int
) -> JointDataset:
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
    chosen = loss_without_groups(task, loss)
    encoding = fit_labels(task, labels, train[label_party].weights, loss_named(chosen).link)
    return JointDataset(
        label_party,
        encoding,
        chosen,
        _sample(train, encoding.transform(labels), train[label_party].weights),
        _sample(test, encoding.transform(held_out), test[label_party].weights),
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


def _sample(tables: Mapping[str, Table], labels: NDArray[np.float64], weights: NDArray[np.float64] | None) -> RowSet:
    return RowSet({name: table.rows for name, table in tables.items()}, labels, mean_one(weights, len(labels)))
