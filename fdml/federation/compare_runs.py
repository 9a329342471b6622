"""Runs of one party beside each other: their held-out figures, and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from fdml.errors import SettingsError
from fdml.federation.party_folder import MODEL
from fdml.federation.run_folder import RUNS, begun_run, run_names
from fdml.models.bundle import Bundle
from fdml.monitor.figures import TITLES
from fdml.settings import RunSettings
from fdml.settings_difference import differences


@dataclass(frozen=True)
class ComparedRun:
    """One finished run."""

    name: str
    created: str
    version: str
    """Runs of one version have the same settings and the same rows."""
    settings: dict[str, str]
    """Those in which the compared runs differ, but for their names."""
    test_loss: float | None = None
    figures: dict[str, float | None] = field(default_factory=dict)
    """Of the held-out rows; only at the label party."""


def compare_runs(home: Path, party: str, names: Sequence[str] = ()) -> list[ComparedRun]:
    """The runs of these names, or all that have finished in a party's folder, in the order of their end."""
    finished = [name for name in run_names(home) if (home / RUNS / name / MODEL).is_dir()]
    unknown = [name for name in names if name not in finished]
    if unknown or not finished:
        known = ", ".join(finished) or "none"
        what = f"run {unknown[0]!r} has not finished" if unknown else "no run has finished"
        raise SettingsError(f"{what} at party {party!r}; finished there: {known}")
    chosen = list(names) or finished
    settings = {name: begun_run(home, name) for name in chosen}
    differing = _differing(list(settings.values()))
    cards = {name: Bundle.load(home / RUNS / name / MODEL).card for name in chosen}
    found = [
        ComparedRun(
            name,
            card.created,
            card.version,
            {setting: _value(settings[name], setting) for setting in differing},
            None if card.metrics is None else card.metrics.test_loss,
            card.figures or {},
        )
        for name, card in cards.items()
    ]
    return sorted(found, key=lambda each: each.created)


def comparison_table(runs: Sequence[ComparedRun]) -> Table:
    """One line for each run."""
    figures = list(dict.fromkeys(name for run in runs for name in run.figures))
    settings = list(dict.fromkeys(name for run in runs for name in run.settings))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("run", "finished", *settings):
        table.add_column(heading)
    for heading in ("test loss", *(TITLES.get(name, name) for name in figures)):
        table.add_column(heading, justify="right")
    for run in runs:
        values = [run.test_loss, *(run.figures.get(name) for name in figures)]
        cells = ["-" if value is None else f"{value:.4f}" for value in values]
        table.add_row(run.name, run.created[:16].replace("T", " "), *(run.settings[name] for name in settings), *cells)
    return table


def _differing(settings: Sequence[RunSettings]) -> list[str]:
    first = settings[0]
    found = [each.setting for other in settings[1:] for each in differences(first, other)]
    return [name for name in dict.fromkeys(found) if name != "name"]


def _value(settings: RunSettings, setting: str) -> str:
    value: object = settings.model_dump(mode="json")
    for part in setting.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "not set" if value is None else str(value)
