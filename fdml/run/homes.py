"""A run whose parties all have their folders beside its run.toml, as after `fdml simulate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fdml.data.rows import width
from fdml.errors import AlignmentError, DataError
from fdml.party.models import Model
from fdml.run.aligning import Aligned, Aligner
from fdml.run.labels import learn_code
from fdml.run.problem import Problem, Sample, mean_one
from fdml.run.simulate import Plan
from fdml.run.store import read_archive
from fdml.settings import PartySettings, RunSettings, loss_for, read_party


@dataclass(frozen=True)
class Home:
    """One party of a run, as its folder tells."""

    folder: Path
    settings: PartySettings
    aligned: Aligned


def read_homes(run_toml: Path, run: RunSettings) -> dict[str, Home]:
    """All parties of an aligned run."""
    return {name: _home(run_toml.parent / name, name, run) for name in run.parties}


def _home(folder: Path, name: str, run: RunSettings) -> Home:
    settings = read_party(folder / "party.toml")
    if settings.party != name:
        raise DataError(f"{folder / 'party.toml'} is of party {settings.party!r}; it should be of {name!r}")
    aligned = Aligner(folder, settings, run, lambda _: None).aligned_before()
    if aligned is None:
        raise AlignmentError(f"party {name!r} has not aligned its rows; run `fdml simulate` first")
    return Home(folder, settings, aligned)


def problem_of(run: RunSettings, homes: Mapping[str, Home]) -> Problem:
    """The rows that a run trains on and holds out, in its order."""
    lead = homes[run.label_party].aligned
    (labels, held_out), (weights, held_out_weights) = lead.labels(), lead.weights()
    code = learn_code(run.task, labels, weights)
    return Problem(
        run.label_party,
        code,
        loss_for(run.task, run.loss),
        Sample(
            {name: home.aligned.train for name, home in homes.items()},
            code.numbers(labels),
            mean_one(weights, len(labels)),
        ),
        Sample(
            {name: home.aligned.held_out for name, home in homes.items()},
            code.numbers(held_out),
            mean_one(held_out_weights, len(held_out)),
        ),
    )


def plan_of(run: RunSettings, homes: Mapping[str, Home], problem: Problem) -> Plan:
    """How a run trains."""
    return Plan(
        run.training,
        {name: home.settings.model for name, home in homes.items()},
        run.label_party,
        problem.loss,
        problem.code.outputs,
        guards={name: home.settings.guard for name, home in homes.items()},
    )


def trained(plan: Plan, home: Home) -> Model:
    """A party's model as its run left it."""
    name = home.settings.party
    path = home.folder / "model.npz"
    if not path.is_file():
        raise DataError(f"party {name!r} has not finished: there is no {str(path)!r}; let the run end first")
    model = plan.model(name, width(home.aligned.train))
    model.restore(read_archive(path)[1][name])
    return model
