"""A search as people and programs read it, for `fdml tune`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.table import Table

from fdml.experiments.search import SearchedRun, SearchResult
from fdml.monitor.figures import LOSS, TITLES
from fdml.monitor.search_plot import PlottedRun
from fdml.settings.file import written_table

OPTIMISTIC = (
    "the best of many on the same held-out rows is too good: for an honest figure train once with these settings and "
    "test on rows that no run of the search has seen (data.test_path at every party)"
)


def title_of(figure: str) -> str:
    """A figure's name for a person."""
    return "test loss" if figure == LOSS else TITLES.get(figure, figure)


def ended_text(run: SearchedRun) -> str:
    """How a run has ended, in a line."""
    if run.end.state != "finished":
        return f"{run.candidate.name}: {run.end.state}: {run.end.reason}"
    figures = [f"{title_of(name)} {figure:.4f}" for name, figure in _main_figures(run) if figure is not None]
    return f"{run.candidate.name}: {', '.join(figures)}"


def search_table(found: SearchResult) -> Table:
    """One line for each run, the best marked."""
    settings = list(dict.fromkeys(name for run in found.runs for name in run.candidate.changes))
    figures = list(
        dict.fromkeys([LOSS, *(name for run in found.runs for name, _ in _main_figures(run)), found.choose_by])
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("run", *settings):
        table.add_column(heading)
    for name in figures:
        table.add_column(title_of(name), justify="right")
    table.add_column("")
    for run in found.runs:
        cells = [_number(run.figure(name)) for name in figures]
        values = [str(run.candidate.changes.get(name, "")) for name in settings]
        state = "best" if run is found.best else "" if run.end.state == "finished" else run.end.state
        table.add_row(run.candidate.name, *values, *cells, state, style="bold" if run is found.best else None)
    return table


def best_lines(found: SearchResult) -> Iterator[str]:
    """What did not finish and why, which run is the best, and what its figure is worth."""
    for run in found.runs:
        if run.end.state != "finished":
            yield ended_text(run)
    if found.best is not None:
        figure = found.best.figure(found.choose_by)
        yield f"best by {title_of(found.choose_by)}: {found.best.candidate.name}, {_number(figure)}"
        yield f"  {found.best.candidate.text}"
        yield OPTIMISTIC


def spent_lines(found: SearchResult) -> Iterator[str]:
    """What the search has released of the rows on this machine."""
    for party, spent in found.spent.items():
        if not spent.releases:
            yield f"{party}: nothing was released"
            continue
        cost = "without noise" if math.isinf(spent.epsilon) else f"epsilon {spent.epsilon:.4g} at delta {spent.delta:g}"
        yield f"{party}: all runs of the search released each row at most {spent.releases} times, {cost}"


def search_json(found: SearchResult) -> dict[str, Any]:
    """The search for programs."""
    return {
        "name": found.name,
        "choose_by": found.choose_by,
        "best": None if found.best is None else found.best.candidate.name,
        "optimistic": OPTIMISTIC,
        "runs": [
            {
                "name": run.candidate.name,
                "state": run.end.state,
                "reason": run.end.reason,
                "settings": dict(run.candidate.changes),
                "version": run.version,
                "test_loss": run.test_loss,
                "figures": dict(run.figures),
            }
            for run in found.runs
        ],
        "spent": {
            party: {
                "releases": each.releases,
                "epsilon": None if math.isinf(each.epsilon) else each.epsilon,
                "delta": each.delta,
            }
            for party, each in found.spent.items()
        },
    }


def plotted(found: SearchResult) -> list[PlottedRun]:
    """The runs that have a figure."""
    figures = [(run, run.figure(found.choose_by)) for run in found.runs if run.end.state == "finished"]
    return [
        PlottedRun(figure, run.candidate.changes, run is found.best) for run, figure in figures if figure is not None
    ]


def best_toml(run: SearchedRun) -> str:
    """A run.toml with a run's settings, to be given a name; what belongs into a party.toml is a comment."""
    lines = [f"# the settings of run {run.candidate.name}; give it a name of its own\n"]
    for party, changes in run.candidate.models.items():
        settings = ", ".join(f"{name} = {value}" for name, value in changes.items())
        lines.append(f"# and in [model] of the party.toml of {party}: {settings}\n")
    return "".join(lines) + written_table(run.candidate.values)


def _main_figures(run: SearchedRun) -> list[tuple[str, float | None]]:
    """The loss and the task's own metric."""
    return [(LOSS, run.figure(LOSS)), *((name, run.figure(name)) for name in list(run.figures)[:1])]


def _number(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.4f}"
