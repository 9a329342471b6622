"""A15: two files that differ in one row, through the whole pipeline. Can what is released tell them apart too well?

Everything from the file on is run again: reading, encoding, scaling, step size, training, guard. The attacker knows
both files, the seed and all settings, so it knows what either would release without noise; it projects what was
released on the difference. Many runs with noise of their own give a lower bound on epsilon, which must not exceed
what the ledger claims of the record level.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from fdml.audit.recording import PartyFile, Recording
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.data.column_features import Feature, Number, NumberInRange
from fdml.data.date_features import DateInRange, DateNumber
from fdml.data.encoding import Encoder
from fdml.data.row_set import RowSet
from fdml.data.rows import take, vstack
from fdml.data.sources import Source, format_of, open_sources
from fdml.errors import SettingsError
from fdml.experiments.in_process import train_in_process
from fdml.party.plan import Plan, training_task
from fdml.privacy.empirical import lower_bound
from fdml.protocol.fixed_point import decode
from fdml.protocol.messages import FromParty, Push
from fdml.settings import GradientGuardSettings
from fdml.settings.data import DataSettings

OUTLIER = 1e6
"""What a number of the changed row becomes."""
STRANGER = "unlike all others"
"""What a category of the changed row becomes."""
LONG_AGO = date(1900, 1, 1)
"""What a date of the changed row becomes."""
_UNLIKE = (Number, NumberInRange, DateNumber, DateInRange)
_TITLE = "DP claim: neighbouring files"
_CALM = 1e-9
"""Noise in training, in clips, where there should be none."""
_RUNS = 100
_ROWS = 5000
"""Of a recorded run, at most; the claim does not depend on their number."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Neighbour:
    """One of two neighbouring data sets as a run trains on it."""

    plan: Plan
    rows: RowSet


@dataclass(frozen=True)
class Telling:
    """How well two neighbours can be told apart, and what is claimed."""

    found: float
    """Epsilon is at least that, with 95 % confidence."""
    claimed: float
    delta: float
    runs: int


def tell_apart(one: Neighbour, other: Neighbour, party: str, runs: int) -> Telling:
    """The lower bound on the epsilon of what a party releases, from so many runs on each of two neighbours."""
    direction = _released(_calm(one), party, 0) - _released(_calm(other), party, 0)
    outputs = {
        sign: np.array([_released(side, party, first + run) @ direction for run in range(runs)])
        for sign, side, first in ((1.0, one, 1), (-1.0, other, 1 + runs))
    }
    ledger = train_in_process(one.plan, one.rows, in_turns=True).ledgers[party]
    found = lower_bound(lambda sign, _: outputs[sign], 1.0, ledger.delta, draws=runs)
    return Telling(found, ledger.worst()[1], ledger.delta, runs)


def _released(side: Neighbour, party: str, noise_seed: int) -> Values:
    """All that a party pushes in one run, step after step."""
    pushed: dict[int, Values] = {}

    def tap(sender: str, message: FromParty) -> None:
        if sender == party and isinstance(message, Push):
            pushed[message.step] = decode(message.release.values).ravel()

    train_in_process(side.plan, side.rows, in_turns=True, noise_seed=noise_seed, tap=tap)
    return np.concatenate([pushed[step] for step in sorted(pushed)])


def _calm(side: Neighbour) -> Neighbour:
    """The same without noise, clips still on: what an attacker expects to see."""
    quiet = {"noise": "none", "sigma": None, "epsilon": None}
    guards = {}
    for name, guard in side.plan.guards.items():
        training = guard.training
        if training is not None:
            training = GradientGuardSettings(clip=training.clip, sigma=_CALM * training.clip)
        guards[name] = guard.model_copy(update={**quiet, "training": training})
    return replace(side, plan=replace(side.plan, guards=guards))


def with_rate(plan: Plan, rows: RowSet, party: str) -> Plan:
    """The plan with a number for the party's step size: what "auto" finds in its rows, as runs did before it was
    refused."""
    start = training_task(plan, rows, party).rate.start
    own = plan.models[party].model_copy(update={"learning_rate": start})
    return replace(plan, models={**plan.models, party: own})


def changed_file(data: DataSettings, row: int, encoder: Encoder, folder: Path) -> DataSettings:
    """The settings of a copy of a CSV or Parquet file in which one row's features are unlike all others."""
    own = single_file(data)
    if own is None:
        raise SettingsError("only a single CSV or Parquet file has a neighbour here; give the rows as one")
    path = folder / f"neighbour{own.suffix}"
    columns = {feature.column: feature for feature in reversed(encoder.features)}
    if format_of(data) == "csv":
        with own.open(newline="", encoding=data.encoding) as source:
            head, *lines = csv.reader(source, delimiter=data.delimiter)
        for name, feature in columns.items():
            lines[row][head.index(name)] = str(_unlike(feature))
        with path.open("w", newline="", encoding=data.encoding) as target:
            csv.writer(target, delimiter=data.delimiter).writerows([head, *lines])
    else:
        table = pa.parquet.read_table(own)
        for name, feature in columns.items():
            at = table.column_names.index(name)
            values, of_type = table.column(at).to_pylist(), table.schema.field(at).type
            values[row] = _unlike(feature) if isinstance(feature, _UNLIKE) else _other_category(values)
            table = table.set_column(at, name, pa.array(values, of_type))
        pa.parquet.write_table(table, path)
    return data.model_copy(update={"path": path, "test_path": None})


def single_file(data: DataSettings) -> Path | None:
    """The one CSV or Parquet file that a party's rows are in; None where they are elsewhere."""
    if not isinstance(data.path, Path) or not data.path.is_file() or format_of(data) not in ("csv", "parquet"):
        return None
    return data.path


def _unlike(feature: Feature) -> float | str | date:
    if isinstance(feature, DateNumber | DateInRange):
        return LONG_AGO
    return int(OUTLIER) if isinstance(feature, Number | NumberInRange) else STRANGER


def _other_category(values: list[Any]) -> Any:
    """A category of the column's type that no row has."""
    known = [value for value in values if value is not None]
    if not known or isinstance(known[0], str):
        return STRANGER
    return not known[0] if isinstance(known[0], bool) else max(known) + 1


def check_neighbours(recording: Recording, runs: int = _RUNS) -> list[AttackResult]:
    """A15: every party that claims an epsilon of the record level."""
    results = []
    for party in recording.run.parties:
        view, file = f"whoever sees what party {party!r} releases", recording.truth.files.get(party)
        if file is None or file.guard.training is None or file.guard.noise == "none":
            reason = "the party has no noise in its training and on what it releases: nothing is claimed of a record"
            results.append(not_applicable("A15", _TITLE, view, reason))
        elif single_file(file.data) is None:
            reason = "only a single CSV or Parquet file is changed in one row"
            results.append(not_applicable("A15", _TITLE, view, reason))
        else:
            results.append(_check_party(recording, party, file, view, runs))
    return results


def _check_party(recording: Recording, party: str, file: PartyFile, view: str, runs: int) -> AttackResult:
    with tempfile.TemporaryDirectory() as folder:
        source = open_sources(file.data.model_copy(update={"test_path": None}))[0]
        if not isinstance(source.encoder, Encoder):
            raise SettingsError("a file of named columns has an encoder of named columns")
        changed = changed_file(file.data, int(file.order[0]), source.encoder, Path(folder))
        one, other = (_neighbour(recording, party, file, each) for each in (source, open_sources(changed)[0]))
    telling = tell_apart(one, other, party, runs)
    return passed_if(
        telling.found <= telling.claimed,
        "A15",
        _TITLE,
        view,
        score=telling.found,
        baseline=0.0,
        bar=f"epsilon found <= {telling.claimed:.3f} claimed",
        reason=f"{runs} runs on each of two files that differ in one row, at delta {telling.delta:g} with 95 % "
        f"confidence; so few runs show at most {np.log(runs / 9):.1f}",
        details={"claimed": telling.claimed, "runs": runs},
    )


def _neighbour(recording: Recording, party: str, file: PartyFile, source: Source) -> Neighbour:
    """A recorded run with one party's rows encoded from a file."""
    run, truth = recording.run, recording.truth
    some = np.arange(min(_ROWS, len(truth.labels)))
    own = take(vstack(list(source.chunks())), file.order[some])
    others = {name: take(rows, some) for name, rows in truth.features.items() if name != party}
    weights = truth.weights[some] if len(truth.weights) else np.ones(len(some))
    parts: Mapping[str, Any] = {name: own if name == party else others[name] for name in run.parties}
    rows = RowSet(parts, truth.shown_labels[some], weights)
    guards = {name: each.guard for name, each in truth.files.items()}
    plan = Plan(
        run.training,
        recording.model_settings,
        run.label_party,
        run.chosen_loss,
        recording.objective.classes if run.task != "regression" else 0,
        guards=guards,
    )
    return Neighbour(with_rate(plan, rows, party), rows)


attacks: dict[str, Attack] = {"A15": check_neighbours}
