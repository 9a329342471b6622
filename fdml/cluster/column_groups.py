"""A party in column groups: whether it can be, and with whom."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from fdml.cluster.column_files import cut_columns
from fdml.cluster.column_job import HELD_OUT, TRAIN, ColumnSetup
from fdml.cluster.column_learner import GroupedLearner
from fdml.cluster.divisible import check_divisible
from fdml.cluster.elsewhere import workers_elsewhere
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.workers import ThreadWorkers, Workers
from fdml.data.rows import Rows
from fdml.errors import SettingsError
from fdml.models.column_groups import Features, group_rows, grouped_model
from fdml.models.model import Model
from fdml.settings import ModelSettings
from fdml.settings.choices import LossName

_WAY_OUT = "leave model.column_groups out"


def check_column_groups(settings: ModelSettings, joint: str, loss: LossName, *, noisy: bool) -> None:
    """Raise unless a party can train with these settings; `noisy` where [guard.training] adds noise."""
    groups = settings.column_groups
    if not groups:
        return
    what = f"model.column_groups has {len(groups)} groups"
    named = [column for columns in groups.values() for column in columns]
    twice = next((column for column in named if named.count(column) > 1), None)
    if twice is not None:
        raise SettingsError(f"model.column_groups has column {twice!r} twice; a column is in one group")
    if settings.shards != 1:
        raise SettingsError(f"{what}, and model.shards is {settings.shards}; leave one of them out")
    check_divisible(what, _WAY_OUT, settings.kind, joint, loss, noisy=noisy)


def grouped_learner(
    setup: ColumnSetup, model: Model, rows: Rows, workers: WorkersSettings, *, party: str, held_out: Rows | None
) -> GroupedLearner:
    """A model in column groups with its rows bound, trained by workers of these settings."""
    joint = "sum" if setup.spec.joint.is_identity else "another"
    check_column_groups(setup.settings, joint, setup.loss, noisy=setup.spec.dp_sgd is not None)
    features = grouped_model(model).features
    parts = {TRAIN: rows} if held_out is None else {TRAIN: rows, HELD_OUT: held_out}
    return GroupedLearner(model, rows, start_workers(setup, parts, features, workers), party=party, held_out=held_out)


def start_workers(
    setup: ColumnSetup, parts: Mapping[str, Rows], groups: Sequence[Features], settings: WorkersSettings
) -> Workers:
    """Workers for these rows; other processes map each group's from files of its own, in a temporary folder."""
    count = settings.workers(len(groups))
    if settings.kind == "threads":
        rows = {part: [group_rows(each, group) for group in groups] for part, each in parts.items()}
        return ThreadWorkers([setup.job(rows) for _ in range(count)])
    folder = Path(tempfile.mkdtemp(prefix="fdml-columns-"))
    cut = {part: cut_columns(each, groups, folder / part) for part, each in parts.items()}
    found = workers_elsewhere(setup.frame(cut, folder), count, settings)
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    return found
