"""Does a record-level epsilon hold from the file on? Runs on neighbouring files, told apart by what is released.

Two files of a party differ in one row: a number becomes 1e6, or a category one that no other row has. For each case
the party trains many times on both, with noise of its own in every run, and an attacker who knows all but the noise
tells them apart (audit A15). Beside each case stands the same run as it was prepared before `[guard.training]` refused
it: scaled and encoded by all rows, with a step size made of their lengths.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from fdml.audit.neighbours import Neighbour, Telling, changed_file, tell_apart, with_rate
from fdml.data.encoding import Encoder
from fdml.data.row_set import RowSet
from fdml.data.rows import DenseRows, vstack
from fdml.data.sources import open_sources
from fdml.errors import SettingsError
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.party.record_level import check_encoder, check_record_level
from fdml.settings import GradientGuardSettings, GuardSettings, TrainingSettings
from fdml.settings.data import DataSettings

UNIT = "epsilon, at least"
PARTY, LABEL_PARTY = "browser", "store"
EPSILON, DELTA = 1.0, 1e-5
ROWS = 5000
_EPOCHS, _PASSES = 2, 10
_COLOURS = ("red", "green", "blue", "black")
_GUARD = GuardSettings(
    clip=3.0,
    noise="gaussian",
    sigma="auto",
    epsilon=EPSILON,
    delta=DELTA,
    training=GradientGuardSettings(clip=1.0, sigma=200.0),
)


@dataclass(frozen=True)
class Case:
    """A kind of model and of column."""

    name: str
    kind: str
    column: str
    """`size`, a number, or `colour`, a category."""
    rate: float

    def data(self, path: Path) -> DataSettings:
        """How the file is read: by settings alone."""
        if self.column == "size":
            return DataSettings(path=path, ranges={"size": (-4.0, 4.0)})
        return DataSettings(path=path, categories={"colour": _COLOURS})


CASES = (
    Case("linear, scaled", "linear", "size", 16.0),
    Case("linear, categories", "linear", "colour", 8.0),
    Case("MLP, scaled", "mlp", "size", 4.0),
    Case("MLP, categories", "mlp", "colour", 2.0),
)


def run(progress: Progress, seeds: int = 500, size: int = ROWS) -> Report:
    """Train every case `seeds` times on each of two neighbours of `size` rows, prepared as now and as before."""
    made_on, made_of = machine(), commit()
    results, ratios = [], {}
    for name, told in _outcomes(progress, seeds, size):
        facts = {"claimed": told.claimed, "delta": told.delta, "runs": told.runs}
        results.append(row(name, [told.found], UNIT) | facts)
        ratios[f"{name}: found / claimed"] = spread([told.found / told.claimed])
    return Report("neighbours", _question(seeds, size), results, ratios, made_on, made_of)


def _outcomes(progress: Progress, seeds: int, size: int) -> Iterator[tuple[str, Telling]]:
    for case in CASES:
        for name, former in ((case.name, False), (f"{case.name}, prepared by all rows", True)):
            progress(name)
            with tempfile.TemporaryDirectory() as folder:
                yield name, tell_apart(*neighbours(case, Path(folder), rows=size, former=former), PARTY, seeds)


def neighbours(case: Case, folder: Path, *, rows: int = ROWS, former: bool = False) -> tuple[Neighbour, Neighbour]:
    """The run of a case on a file and on its neighbour; `former` prepares them by all rows."""
    random = np.random.default_rng(13)
    size = random.normal(size=rows)
    colour = np.array(_COLOURS)[np.digitize(size, [-0.8, 0.0, 0.8])]
    labels = (size + 0.3 * random.normal(size=rows) > 0).astype(np.float64)
    values: Any = size.round(4) if case.column == "size" else colour
    path = folder / "rows.csv"
    path.write_text("\n".join([case.column, *map(str, values)]) + "\n", encoding="utf-8")
    data = DataSettings(path=path) if former else case.data(path)
    encoder = open_sources(data)[0].encoder
    if not isinstance(encoder, Encoder):
        raise SettingsError("a CSV file has an encoder of named columns")
    changed = changed_file(data, int(np.argmin(size)), encoder, folder)  # the row that moves farthest
    one, other = (_neighbour(case, each, labels, former=former) for each in (data, changed))
    return one, other


def _neighbour(case: Case, data: DataSettings, labels: Any, *, former: bool) -> Neighbour:
    source = open_sources(data)[0]
    training = TrainingSettings(
        epochs=_EPOCHS,
        passes=_PASSES,
        batch_size=len(labels),
        batches_per_block="all",
        lookahead=0,
        echo=1.0,
        learning_rate=case.rate,
    )
    hidden: dict[str, Any] = {"hidden": (8,)} if case.kind == "mlp" else {}
    own = model_settings(case.kind, optimizer="sgd", l2=0.0, learning_rate="auto" if former else None, **hidden)
    if not former:
        check_record_level(_GUARD, training, own, data)
        check_encoder(_GUARD, data, source.encoder)
    plan = Plan(
        training,
        {LABEL_PARTY: model_settings(optimizer="sgd", l2=0.0), PARTY: own},
        LABEL_PARTY,
        "logistic",
        2,
        guards={PARTY: _GUARD},
    )
    none = DenseRows(np.zeros((len(labels), 0), np.float32))
    rows = RowSet({LABEL_PARTY: none, PARTY: vstack(list(source.chunks()))}, labels, np.ones(len(labels)))
    return Neighbour(with_rate(plan, rows, PARTY) if former else plan, rows)


def _question(seeds: int, size: int) -> str:
    return (
        f"Does the record-level epsilon of a party hold from its file on? {seeds} runs on each of two files of {size} "
        f"rows that differ in one row, epsilon {EPSILON:g} claimed at delta {DELTA:g}; the bound has 95 % confidence "
        f"and, with so many runs, ends at {np.log(seeds / 9):.1f}. It must not exceed the claim. 'prepared by all "
        f"rows' are runs as they were before this was refused: there it may."
    )
