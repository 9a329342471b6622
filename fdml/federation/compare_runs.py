"""Runs of one party beside each other: their held-out figures, and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from fdml.errors import SettingsError
from fdml.federation.party_folder import HISTORY
from fdml.federation.run_folder import MODEL, RUNS, begun_run, run_names
from fdml.federation.versions import Promotion, Promotions
from fdml.models.bundle import Bundle
from fdml.monitor.convergence import convergence_of
from fdml.monitor.figures import TITLES
from fdml.monitor.history import read_history
from fdml.settings import RunSettings
from fdml.settings.difference import differences


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
    """Of the held-out rows, the task's own metric first; only at the label party."""
    gain: tuple[float | None, float | None, float | None] | None = None
    """What it brings over the label party alone, and between which values that is; None where it was not compared."""
    convergence: str | None = None
    """"converged", "falling" or "diverged"; None where that is not known here."""
    remark: str = ""
    """For a person, where training has not converged."""
    earlier: str = ""
    """What it brings over the version that it was compared with, on the same rows; only at the label party."""
    promoted: bool = False
    """Whether it is the promoted one."""


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
    current = Promotions(home).current
    found = [
        _compared(home, name, {each: _value(settings[name], each) for each in differing}, current) for name in chosen
    ]
    return sorted(found, key=lambda each: each.created)


def comparison_table(runs: Sequence[ComparedRun]) -> Table:
    """One line for each run: its name, when it ended, the settings that differ, loss, metric, and the gain of it."""
    settings = list(dict.fromkeys(name for run in runs for name in run.settings))
    metrics = list(dict.fromkeys(next(iter(run.figures)) for run in runs if run.figures))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("run", "finished"):
        table.add_column(heading, no_wrap=True)
    for heading in _short(settings):  # these are folded where a terminal is narrow, figures never
        table.add_column(heading, overflow="fold")
    for heading in ("test loss", *(TITLES.get(name, name) for name in metrics), "over alone"):
        table.add_column(heading, justify="right", no_wrap=True)
    if any(run.promoted for run in runs):
        table.add_column("")
    for run in runs:
        figures = [run.test_loss, *(run.figures.get(name) for name in metrics)]
        cells = ["-" if value is None else f"{value:.4f}" for value in figures]
        when = run.created[:16].replace("T", " ")
        texts = (*(run.settings[name] for name in settings), *cells, _gain_text(run))
        table.add_row(run.name, when, *texts, *(["promoted"] if run.promoted else []))
    return table


def comparison_remarks(runs: Sequence[ComparedRun]) -> list[str]:
    """What is to be said of single runs."""
    return [f"{run.name}: {text}" for run in runs for text in (run.remark, run.earlier) if text]


def _compared(home: Path, name: str, settings: dict[str, str], current: Promotion | None) -> ComparedRun:
    card = Bundle.load(home / RUNS / name / MODEL).card
    epochs = read_history(home / RUNS / name / HISTORY)
    trend, gain = convergence_of([epochs[each].train_loss for each in sorted(epochs)]), card.compared
    return ComparedRun(
        name,
        card.created,
        card.version,
        settings,
        None if card.metrics is None else card.metrics.test_loss,
        card.figures or {},
        None if gain is None else (gain.gain, gain.low, gain.high),
        None if trend is None else trend.trend,
        "" if trend is None else trend.text,
        "" if card.earlier is None else card.earlier.text,
        current is not None and current.version == card.version,
    )


def _gain_text(run: ComparedRun) -> str:
    gain, low, high = run.gain or (None, None, None)
    if gain is None:
        return "-"
    return f"{gain:+.3f}" if low is None or high is None else f"{gain:+.3f} ({low:.3f} to {high:.3f})"


def _short(settings: Sequence[str]) -> list[str]:
    """Settings without their table, where that leaves them apart."""
    last = [name.rpartition(".")[2] for name in settings]
    return [short if last.count(short) == 1 else name for name, short in zip(settings, last, strict=True)]


def _differing(settings: Sequence[RunSettings]) -> list[str]:
    first = settings[0]
    found = [each.setting for other in settings[1:] for each in differences(first, other)]
    return [name for name in dict.fromkeys(found) if name != "name"]


def _value(settings: RunSettings, setting: str) -> str:
    value: object = settings.model_dump(mode="json", by_alias=True)
    for part in setting.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "not set" if value is None else str(value)
