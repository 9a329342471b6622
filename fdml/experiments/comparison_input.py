"""What `fdml compare` can be pointed at: a run file, or one data file with groups of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdml.data.frames import Frame
from fdml.data.origins import frame_origins
from fdml.data.partition import column_halves, overlap, parse_groups, partition
from fdml.data.readers import load
from fdml.data.sources import open_sources
from fdml.data.table import PartyData, Table
from fdml.errors import LabelError, SettingsError
from fdml.experiments.compare import Contender
from fdml.experiments.dataset import JointDataset, build_dataset
from fdml.experiments.key_join import load_parties
from fdml.experiments.party_folders import dataset_of, finished_folders
from fdml.models.registry import kind_named, model_settings, with_native
from fdml.party.class_weights import numbered
from fdml.party.record_level import check_encoder, check_record_level
from fdml.party.settings import PartySettings, check_label_owner, read_party
from fdml.settings import GuardSettings, RunSettings, TrainingSettings
from fdml.settings.choices import LossName, Task
from fdml.settings.data import DataSettings
from fdml.settings.federation import read_run
from fdml.settings.losses import task_of


def from_run_file(path: Path) -> tuple[JointDataset, list[Contender], int]:
    """JointDataset, contender and seed of a run whose parties' folders stand beside run.toml.

    Where the run has finished in these folders, its own rows are taken: the same ones are held out.
    """
    run = read_run(path)
    parties = {name: _party_of(path, name) for name in run.parties}
    for party in parties.values():
        check_label_owner(party, run)
        _check_record_level(party, run)
    if (folders := finished_folders(path, run)) is not None:
        problem, native = dataset_of(run, folders), {name: each.rows.native for name, each in folders.items()}
        parties = {name: each.folder.settings for name, each in folders.items()}
    else:
        data, seed = load_parties(run, parties), run.training.seed
        problem = build_dataset(data, run.label_party, run.task, run.chosen_loss, run.evaluation.holdout, seed)
        native = {name: each.train.native for name, each in data.items()}
    models = {name: with_native(party.model, native[name]) for name, party in parties.items()}
    kinds = dict.fromkeys(kind_named(model.kind).display_name for model in models.values())
    guards = {name: party.guard for name, party in parties.items() if party.guard != GuardSettings()}
    training = run.training
    if isinstance(training.class_weight, dict):
        weights = numbered(training.class_weight, problem.encoding)
        training = training.model_copy(update={"class_weight": weights})
    return problem, [Contender("+".join(kinds), training, models, guards)], run.training.seed


def _party_of(run: Path, name: str) -> PartySettings:
    path = run.parent / name / "party.toml"
    if not path.is_file():
        raise SettingsError(
            f"party {name!r} of {run} has no file {str(path)!r}; every party needs its folder beside run.toml"
        )
    settings = read_party(path)
    if settings.party != name:
        raise SettingsError(f"{path}: party is {settings.party!r}, but its folder is {name!r}; use one name")
    return settings


def _check_record_level(party: PartySettings, run: RunSettings) -> None:
    """Raise where a party's noise in training would not cover what is made of its rows, as `fdml join` does."""
    if party.guard.training is not None:
        check_record_level(party.guard, run.training, party.model, party.data)
        check_encoder(party.guard, party.data, open_sources(party.data)[0].encoder)


def from_data_file(
    data: DataSettings,
    groups: str | None,
    task: Task | None,
    holdout: float,
    seed: int,
    remark: Callable[[str], None] = lambda _: None,
    loss: LossName | None = None,
) -> JointDataset:
    """Split the columns of one file among parties; the first group's party holds the labels.

    A task that is not given goes by the loss, or else by the labels. `remark` hears what a person should know of the
    columns.
    """
    loaded = load(data, remark=remark)
    names = loaded.train.names
    chosen: Sequence[Sequence[int]] = column_halves(names) if groups is None else parse_groups(groups, names)
    if twice := overlap(chosen, names):
        remark(twice)
    train = partition(loaded.train, chosen)
    test = None if loaded.test is None else partition(loaded.test, chosen)
    parties = {f"party {at}": PartyData(table, None if test is None else test[at]) for at, table in enumerate(train)}
    return build_dataset(parties, "party 0", task or _guessed(loss, loaded.train), loss, holdout, seed)


def from_frames(
    frames: Mapping[str, Frame],
    *,
    label: str,
    id: str | Sequence[str] = (),
    task: Task | None = None,
    loss: LossName | None = None,
    holdout: float = 0.2,
    seed: int = 7,
    data: Mapping[str, Mapping[str, Any]] | None = None,
) -> JointDataset:
    """Join frames of several parties, for `fdml.compare`; the first party's has the label.

    Rows are joined by the columns in `id`, or by position where there are none. `data` has further settings of
    `[data]` by party. A quantile other than the median is given as `loss="quantile(0.9)"`.
    """
    label_party = next(iter(frames))
    parties = {}
    for name, frame in frames.items():
        own = {"id": id, "label": label if name == label_party else None, **(data or {}).get(name, {})}
        parties[name] = load(DataSettings(**own), origins=frame_origins(frame))
    found = task or _guessed(loss, parties[label_party].train)
    return build_dataset(parties, label_party, found, loss, holdout, seed)


def _guessed(loss: LossName | None, table: Table) -> Task:
    return guess_task(table) if loss is None else task_of(loss)


def guess_task(table: Table) -> Task:
    """The task that labels like these usually mean."""
    if table.labels is None:
        raise LabelError("there are no labels; name the label column with --label")
    labels = np.asarray(table.labels)
    if labels.dtype.kind == "f" and np.any(labels != np.trunc(labels)):
        return "regression"
    return "multiclass" if len(np.unique(labels)) > 2 else "binary"


def contenders(
    kinds: Sequence[str], parties: Sequence[str], training: TrainingSettings | None = None, l2: float | str = "auto"
) -> list[Contender]:
    """One contender per kind of model, the same kind at every party, for `fdml.compare`.

    Without `training` it is trained with the defaults of `[training]`.
    """
    chosen = TrainingSettings() if training is None else training
    return [
        Contender(kind_named(kind).display_name, chosen, dict.fromkeys(parties, model_settings(kind, l2=l2)))
        for kind in kinds
    ]
