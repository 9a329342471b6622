"""The models of a party's folder: one for each run that has ended, named by its version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fdml.errors import DataError, SettingsError
from fdml.federation.predicting import ABSENCE
from fdml.federation.publish import COLUMN_PARTS, publishing_turn
from fdml.federation.run_folder import MODEL, RUNS, run_names
from fdml.federation.versions import Promotion, Promotions
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard
from fdml.serving.publication import FOLDER, Publication, is_published
from fdml.storage.atomic import remove_folder, sync, whole_folder


@dataclass(frozen=True)
class KnownModel:
    """A model in a party's folder."""

    run: str
    card: BundleCard
    rows: int | None
    """Rows that can be asked for; None where it is not published."""
    generation: int | None = None


def models_of(home: Path) -> list[KnownModel]:
    """All models, the oldest first."""
    found = [model_of(home, name) for name in run_names(home) if whole_folder(home / RUNS / name / MODEL).is_dir()]
    return sorted(found, key=lambda each: each.card.created)


def model_of(home: Path, run: str) -> KnownModel:
    """The model of one run."""
    card = Bundle.check(home / RUNS / run / MODEL)
    place = home / RUNS / run / FOLDER
    if not is_published(place):
        return KnownModel(run, card, None)
    published = Publication.load(place)
    return KnownModel(run, card, len(published.column), published.facts.generation)


def chosen_model(home: Path, name: str) -> KnownModel:
    """A model by the name of its run, or by the first characters of its version."""
    known = models_of(home)
    fitting = [each for each in known if each.run == name] or [
        each for each in known if name and each.card.version.startswith(name)
    ]
    if len(fitting) != 1:
        listed = ", ".join(f"{each.run} ({each.card.version[:12]})" for each in known) or "none"
        why = "several models fit" if fitting else "there is no model"
        raise DataError(f"{why} {name!r} in {str(home)!r}; the models there: {listed}")
    return fitting[0]


def promote_model(home: Path, name: str) -> Promotion:
    """Let a model be the one to predict with. One that is not published yet cannot be."""
    found = chosen_model(home, name)
    if found.rows is None:
        raise DataError(f"the model of run {found.run!r} is not published, and nobody can ask for it; finish the run")
    return Promotions(home).promote(found.card.version, found.run, "person")


def roll_back(home: Path) -> Promotion:
    """Promote again what was promoted before the present model, of those that are still there."""
    promotions = Promotions(home).all()
    held = {each.card.version: each.run for each in models_of(home)}
    now = promotions[-1].version if promotions else ""
    before = [each for each in promotions if each.version != now and each.version in held]
    if not before:
        raise DataError(f"there is nothing to roll back to in {str(home)!r}; `fdml runs versions` lists all promotions")
    chosen = before[-1]
    return Promotions(home).promote(chosen.version, held[chosen.version], "person", f"rolled back from {now[:12]}")


def forget_model(home: Path, run: str) -> list[str]:
    """Remove a model for good: bundle, column, serving keys and calibrations. Ledger and statement stay."""
    folder = home / RUNS / run
    if run not in run_names(home):
        raise SettingsError(f"there is no run {run!r} in {str(home / RUNS)!r}")
    gone = []
    with publishing_turn(folder / FOLDER):  # else a column that is computed just now would come back
        for name in (FOLDER, ABSENCE, MODEL):
            place = folder / name
            was_there = place.is_file() or remove_folder(place)
            if place.is_file():
                place.unlink()
            gone += [name] * was_there
        remove_folder(folder / COLUMN_PARTS)
        sync(folder)
    return gone
