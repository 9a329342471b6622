"""A run whose parties all have their folders beside its run.toml, as after `fdml simulate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fdml.data.label_encoding import fit_labels
from fdml.data.row_set import RowSet, mean_one
from fdml.data.rows import width
from fdml.errors import AlignmentError, DataError
from fdml.experiments.dataset import JointDataset
from fdml.federation.alignment import AlignedData, Aligner
from fdml.models.archive import read_archive
from fdml.models.model import Model
from fdml.party.plan import Plan
from fdml.party.settings import PartySettings, read_party
from fdml.settings import RunSettings, loss_for


@dataclass(frozen=True)
class PartyFolder:
    """One party of a run, as its folder tells."""

    folder: Path
    settings: PartySettings
    aligned: AlignedData


def read_party_folders(run_toml: Path, run: RunSettings) -> dict[str, PartyFolder]:
    """All parties of an aligned run."""
    return {name: _home(run_toml.parent / name, name, run) for name in run.parties}


def _home(folder: Path, name: str, run: RunSettings) -> PartyFolder:
    settings = read_party(folder / "party.toml")
    if settings.party != name:
        raise DataError(f"{folder / 'party.toml'} is of party {settings.party!r}; it should be of {name!r}")
    aligned = Aligner(folder, settings, run, lambda _: None).aligned_before()
    if aligned is None:
        raise AlignmentError(f"party {name!r} has not aligned its rows; run `fdml simulate` first")
    return PartyFolder(folder, settings, aligned)


def dataset_of(run: RunSettings, folders: Mapping[str, PartyFolder]) -> JointDataset:
    """The rows that a run trains on and holds out, in its order."""
    lead = folders[run.label_party].aligned
    (labels, held_out), (weights, held_out_weights) = lead.labels(), lead.weights()
    encoding = fit_labels(run.task, labels, weights)
    return JointDataset(
        run.label_party,
        encoding,
        loss_for(run.task, run.loss),
        RowSet(
            {name: home.aligned.train for name, home in folders.items()},
            encoding.transform(labels),
            mean_one(weights, len(labels)),
        ),
        RowSet(
            {name: home.aligned.held_out for name, home in folders.items()},
            encoding.transform(held_out),
            mean_one(held_out_weights, len(held_out)),
        ),
    )


def plan_of(run: RunSettings, folders: Mapping[str, PartyFolder], problem: JointDataset) -> Plan:
    """How a run trains."""
    return Plan(
        run.training,
        {name: home.settings.model for name, home in folders.items()},
        run.label_party,
        problem.loss,
        problem.encoding.class_count,
        guards={name: home.settings.guard for name, home in folders.items()},
    )


def load_model(plan: Plan, home: PartyFolder) -> Model:
    """A party's model as its run left it."""
    name = home.settings.party
    path = home.folder / "model.npz"
    if not path.is_file():
        raise DataError(f"party {name!r} has not finished: there is no {str(path)!r}; let the run end first")
    return plan.model(name, width(home.aligned.train), state=read_archive(path)[1][name])
