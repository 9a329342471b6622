"""Small data that is the same wherever it is made: each party's files, and the `[data]` settings to read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.golden.layout import Settings

Columns = dict[str, NDArray[np.generic]]
_ROWS = 400
_OWN_COLUMNS = 3
_MISSED_BY_EACH = 20
"""Rows of a party with ids that its file does not have."""


@dataclass(frozen=True)
class PartyData:
    """What a party brings."""

    files: Mapping[str, str]
    """Texts by file name."""
    settings: Settings
    """`[data]` of its party.toml."""


def numbers(rows: int, width: int, task: str, seed: int) -> tuple[NDArray[np.float64], NDArray[np.generic]]:
    """Features and labels; the labels depend on all features, and on a product of the first and the last."""
    chance = np.random.default_rng(seed)
    X = chance.normal(size=(rows, width)).round(4)
    score = X @ chance.normal(size=width) + X[:, 0] * X[:, -1] + 0.5 * chance.normal(size=rows)
    if task == "regression":
        return X, (50.0 + 10.0 * score).round(3)
    if task == "multiclass":
        return X, np.array(["low", "middle", "top"])[np.digitize(score, [-1.0, 1.0])]
    return X, np.where(score > 0, "yes", "no")


def with_ids(
    parties: Sequence[str], task: str = "binary", *, weighted: bool = False, test_rows: int = 0, seed: int = 1
) -> dict[str, PartyData]:
    """CSV files; each party lacks some rows and has the others in an order of its own."""
    chance = np.random.default_rng(seed + 1000)
    rows = _ROWS + test_rows
    weights = chance.uniform(0.5, 2.0, rows).round(3)
    found = {}
    for number, (party, columns) in enumerate(_dealt(parties, rows, task, seed).items()):
        columns["id"] = np.array([f"user-{row:04d}" for row in range(rows)])
        settings: dict[str, object] = {"path": "train.csv", "id": "id"}
        if number == 0:
            settings["label"] = "label"
            if weighted:
                columns["weight"] = weights
                settings["weight"] = "weight"
        order = chance.permutation(rows)[_MISSED_BY_EACH:]
        files = {"train.csv": _csv(columns, order[order < _ROWS])}
        if test_rows:
            files["test.csv"] = _csv(columns, order[order >= _ROWS])
            settings["test_path"] = "test.csv"
        found[party] = PartyData(files, settings)
    return found


def unscaled(parties: Sequence[str]) -> dict[str, PartyData]:
    """The same as `with_ids`, with numbers as they are."""
    return {
        party: PartyData(data.files, {**data.settings, "scale": "none"}) for party, data in with_ids(parties).items()
    }


def by_position(parties: Sequence[str], task: str = "binary", *, seed: int = 2) -> dict[str, PartyData]:
    """CSV files without ids: row by row the same people."""
    found = {}
    for number, (party, columns) in enumerate(_dealt(parties, _ROWS, task, seed).items()):
        settings = {"path": "train.csv", **({"label": "label"} if number == 0 else {})}
        found[party] = PartyData({"train.csv": _csv(columns, np.arange(_ROWS))}, settings)
    return found


def sparse(parties: Sequence[str], *, seed: int = 3) -> dict[str, PartyData]:
    """LIBSVM files with 5 of 40 features in each row; only the first party's labels mean anything."""
    chance = np.random.default_rng(seed)
    total = np.zeros(_ROWS)
    lines: dict[str, list[str]] = {}
    for party in parties:
        effects = chance.normal(size=40)
        lines[party] = []
        for row in range(_ROWS):
            chosen = np.sort(chance.choice(40, 5, replace=False))
            values = chance.uniform(0.5, 1.5, 5).round(3)
            total[row] += effects[chosen] @ values
            lines[party].append(" ".join(f"{at + 1}:{value}" for at, value in zip(chosen, values, strict=True)))
    found = {}
    for number, party in enumerate(parties):
        labels = np.where(total > 0, 1, -1) if number == 0 else np.zeros(_ROWS, int)
        text = _text(f"{label} {features}" for label, features in zip(labels, lines[party], strict=True))
        found[party] = PartyData({"train.libsvm": text}, {"path": "train.libsvm"})
    return found


def mixed_columns(parties: Sequence[str], *, seed: int = 4) -> dict[str, PartyData]:
    """CSV files with ids, categories, codes, hashed columns, and gaps in numbers and categories."""
    chance = np.random.default_rng(seed)
    ids = np.array([f"user-{row:04d}" for row in range(_ROWS)])
    ages = {party: chance.normal(40.0, 12.0, _ROWS).round(1) for party in parties}
    codes = {party: chance.integers(1, 6, _ROWS) for party in parties}
    score = sum((ages[party] - 40.0) / 12.0 + (codes[party] == 3) for party in parties)
    labels = np.where(score + chance.normal(size=_ROWS) > 0.5, "yes", "no")
    found = {}
    for number, party in enumerate(parties):
        columns: Columns = {
            "id": ids,
            "age": np.where(chance.random(_ROWS) < 0.1, "", ages[party].astype(str)),
            "code": codes[party],
            "city": chance.choice(["Oslo", "Paris", "Rome", ""], _ROWS),
            "site": np.array([f"site-{at}" for at in chance.integers(0, 60, _ROWS)]),
        }
        settings: dict[str, object] = {
            "path": "train.csv",
            "id": "id",
            "categorical": ["code"],
            "hashed": ["site"],
            "hash_size": 16,
            "missing": "mean" if number == 0 else "zero",
        }
        if number == 0:
            columns["label"], settings["label"] = labels, "label"
        found[party] = PartyData({"train.csv": _csv(columns, chance.permutation(_ROWS))}, settings)
    return found


def one_table(rows: int = 300, width: int = 6, *, seed: int = 5) -> str:
    """A CSV file with all features and the labels, for `fdml compare`."""
    X, labels = numbers(rows, width, "binary", seed)
    return _csv({**{f"x{at}": X[:, at] for at in range(width)}, "label": labels}, np.arange(rows))


def _dealt(parties: Sequence[str], rows: int, task: str, seed: int) -> dict[str, Columns]:
    """Every party's own columns; the first has the labels too."""
    X, labels = numbers(rows, _OWN_COLUMNS * len(parties), task, seed)
    dealt: dict[str, Columns] = {}
    for number, party in enumerate(parties):
        dealt[party] = {f"x{at}": X[:, _OWN_COLUMNS * number + at] for at in range(_OWN_COLUMNS)}
    dealt[parties[0]]["label"] = labels
    return dealt


def _csv(columns: Columns, order: NDArray[np.int64]) -> str:
    return _text([",".join(columns), *(",".join(str(column[row]) for column in columns.values()) for row in order)])


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
