"""A run whose parties all have their folders beside its run.toml and federation.toml, as after `fdml simulate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fdml.data.row_set import RowSet
from fdml.data.rows import Rows, width
from fdml.errors import AlignmentError, DataError, StateCorrupt
from fdml.experiments.dataset import JointDataset
from fdml.federation.party_folder import PartyFolder
from fdml.federation.run_folder import MODEL, RUNS, settings_in
from fdml.models.bundle import Bundle
from fdml.models.model import Model
from fdml.party.alignment import SharedRows
from fdml.party.data import PartyRows
from fdml.party.plan import Plan
from fdml.settings import RunSettings


@dataclass(frozen=True)
class AlignedFolder:
    """The folder of one party of an aligned run."""

    folder: PartyFolder
    shared: SharedRows
    rows: PartyRows


def read_party_folders(run_toml: Path, run: RunSettings) -> dict[str, AlignedFolder]:
    """All parties of an aligned run."""
    return {name: _read(run_toml.parent / name, name, run) for name in run.parties}


def finished_folders(run_toml: Path, run: RunSettings) -> dict[str, AlignedFolder] | None:
    """All parties of a run that has finished here with these settings; None where one has not, or its rows are gone."""
    ended = [run_toml.parent / name / RUNS / run.name for name in run.parties]
    if not all((each / MODEL).is_dir() and settings_in(each) == run for each in ended):
        return None
    try:
        return read_party_folders(run_toml, run)
    except (AlignmentError, DataError, StateCorrupt):  # files were changed or removed after the run
        return None


def _read(path: Path, name: str, run: RunSettings) -> AlignedFolder:
    folder = PartyFolder(path / "party.toml", run)
    if folder.settings.party != name:
        raise DataError(f"{path / 'party.toml'} is of party {folder.settings.party!r}; it should be of {name!r}")
    shared = folder.shared_rows()
    if shared is None:
        raise AlignmentError(f"party {name!r} has not aligned its rows; run `fdml simulate` first")
    return AlignedFolder(folder, shared, folder.files.rows(shared))


def dataset_of(run: RunSettings, folders: Mapping[str, AlignedFolder]) -> JointDataset:
    """The rows that a run trains on and holds out, in its order."""
    label_party = folders[run.label_party]
    labels, encoding = label_party.folder.files.labels(label_party.shared)
    return JointDataset(
        run.label_party,
        encoding,
        run.chosen_loss,
        RowSet({name: each.rows.train for name, each in folders.items()}, labels.train, labels.train_weights),
        RowSet({name: _held_out(each) for name, each in folders.items()}, labels.held_out, labels.held_out_weights),
        run_seed=run.training.seed,
    )


def _held_out(folder: AlignedFolder) -> Rows:
    if folder.rows.held_out is None:
        raise DataError(f"party {folder.folder.settings.party!r} has no held-out rows; raise evaluation.holdout")
    return folder.rows.held_out


def plan_of(run: RunSettings, folders: Mapping[str, AlignedFolder], problem: JointDataset) -> Plan:
    """How a run trains."""
    plan = Plan(
        run.training,
        {name: home.folder.settings.model for name, home in folders.items()},
        run.label_party,
        problem.loss,
        problem.encoding.class_count,
        guards={name: home.folder.settings.guard for name, home in folders.items()},
        line=max(home.shared.line for home in folders.values()),
    )
    return plan.resolved(len(problem.train), problem.train.parts)


def load_model(plan: Plan, home: AlignedFolder) -> Model:
    """A party's model as its run left it."""
    name = home.folder.settings.party
    return plan.model(name, width(home.rows.train), state=Bundle.load(home.folder.run_folder.path / MODEL).parameters)
