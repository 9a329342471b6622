"""At home, for a party's own eyes: which of its columns matter to its part of the score, and why for single rows.

Nothing is asked of anyone and nothing leaves: names and values of columns are the party's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from fdml.data.origins import origins_of
from fdml.data.rows import Rows, choose, row_count, vstack
from fdml.data.sources import Source, open_encoded
from fdml.errors import DataError
from fdml.federation.leading_keys import data_settings
from fdml.federation.predicting import chosen_run
from fdml.federation.run_folder import MODEL, RUNS
from fdml.models.bundle import Bundle
from fdml.models.importance import (
    Groups,
    coefficients,
    columns_of,
    contributions,
    permutation_importance,
    reason_codes,
)
from fdml.party.settings import read_party
from fdml.serving.publication import FOLDER, read_facts
from fdml.serving.publishing import model_of

MOST_ROWS = 5_000
_REASONS = 3


@dataclass(frozen=True)
class OwnColumns:
    """What was found of a party's own model."""

    run: str
    party: str
    kind: str
    rows: int
    importance: dict[str, float]
    """By column, how far local predictions move when its values are dealt out anew, the most important first."""
    contribution: dict[str, float] | None
    """By column, how much it adds to a prediction or takes off, on average; None where the kind cannot tell."""
    coefficients: dict[str, float] | None
    """Of a linear model: the weight of every feature."""
    reasons: list[list[tuple[str, float]]]
    """By row, the columns that move its prediction most; empty where the kind cannot tell."""
    row_numbers: NDArray[np.int64]
    """Which rows of the file these are."""
    ids: Any
    """Of all rows of the file, or None."""


def own_columns(path: Path, *, run: str | None, version: str | None, most: int = MOST_ROWS) -> OwnColumns:
    """Look at the published model of this party.toml, on at most so many of its own rows."""
    party, home = read_party(path), path.parent
    name = chosen_run(home, run, version)
    facts = read_facts(home / RUNS / name / FOLDER)
    bundle = Bundle.load(home / RUNS / name / MODEL)
    model, groups = model_of(bundle, facts.run), columns_of(bundle.encoder)
    if not groups:
        raise DataError(f"party {party.party!r} has no features in run {name!r}; there is nothing to explain at home")
    source = open_encoded(data_settings(party, facts.run), bundle.encoder, origins_of(party.data)[0])
    rows, numbers = _some(source, most, facts.run.training.seed)
    kind = str(bundle.card.settings.model["kind"])
    found = permutation_importance(model, rows, groups, seed=facts.run.training.seed)
    added = contributions(model, rows, groups, kind)
    ids = source.ids()
    return OwnColumns(
        run=name,
        party=party.party,
        kind=kind,
        rows=row_count(rows),
        importance=_sorted(found),
        contribution=None if added is None else _mean_sizes(added, groups),
        coefficients=coefficients(model, bundle.encoder.names, kind) if model.predict(rows).shape[1] == 1 else None,
        reasons=[] if added is None else reason_codes(added, tuple(groups), _REASONS),
        row_numbers=numbers,
        ids=None if ids is None else ids.texts.take(pa.array(_places(ids.rows, numbers))),
    )


def write_reasons(found: OwnColumns, path: Path) -> None:
    """A CSV file with a line for each row: its id or number, and its reasons."""
    if not found.reasons:
        raise DataError(f"a model of kind {found.kind!r} does not tell why; linear models and trees do")
    keys = found.row_numbers if found.ids is None else found.ids
    columns: dict[str, Any] = {"row" if found.ids is None else "id": keys}
    for place in range(max(map(len, found.reasons))):
        columns[f"column_{place + 1}"] = [each[place][0] for each in found.reasons]
        columns[f"adds_{place + 1}"] = [each[place][1] for each in found.reasons]
    pyarrow.csv.write_csv(pa.table(columns), path)


def _some(source: Source, most: int, seed: int) -> tuple[Rows, NDArray[np.int64]]:
    """At most so many rows, drawn by the seed, and their numbers in the file."""
    random = np.random.default_rng(seed)
    numbers = np.sort(random.choice(source.count, min(most, source.count), replace=False))
    parts: list[Rows] = []
    first = 0
    for chunk in source.chunks():
        count = row_count(chunk)
        chosen = numbers[(numbers >= first) & (numbers < first + count)] - first
        parts.append(choose(chunk, chosen))
        first += count
    return vstack(parts), numbers


def _places(rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of these rows of the file stands among those with an id."""
    found = np.searchsorted(rows, numbers)
    held = rows[np.minimum(found, len(rows) - 1)] == numbers
    return np.where(held, found, 0)


def _sorted(found: dict[str, float]) -> dict[str, float]:
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def _mean_sizes(added: NDArray[np.float64], groups: Groups) -> dict[str, float]:
    sizes: Sequence[float] = np.abs(added).mean(axis=0).tolist()
    return _sorted(dict(zip(groups, sizes, strict=True)))
