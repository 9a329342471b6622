"""The plot of a search: the held-out figure of every run against each setting that was searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdml.monitor.figures import TITLES
from fdml.monitor.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ACROSS = 4
"""Plots beside each other."""
_LOG_SPAN = 30.0
"""Numbers whose largest is so many times the smallest are drawn on a logarithmic axis."""
_COLOUR, _BEST = "#2b6cb0", "#c53030"


@dataclass(frozen=True)
class PlottedRun:
    """One finished run."""

    figure: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_best: bool = False


def draw_search(runs: Sequence[PlottedRun], choose_by: str, path: Path) -> None:
    """Write a picture with one plot for each searched setting; runs without a figure have no place in it."""
    names = list(dict.fromkeys(name for run in runs for name in run.settings)) or [""]
    across = min(_MOST_ACROSS, len(names))
    down = -(-len(names) // across)
    figure = new_figure(4.2 * across, 3.6 * down)
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, name in zip(grid, names, strict=False):
        _draw(axes, runs, name)
        axes.set_xlabel(name)
        axes.set_ylabel(f"held-out {TITLES.get(choose_by, choose_by.replace('_', ' '))}")
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    figure.savefig(path, dpi=110)


def _draw(axes: Axes, runs: Sequence[PlottedRun], name: str) -> None:
    values = [run.settings.get(name) for run in runs]
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) == len(values) and numbers:
        places = numbers
        if min(numbers) > 0 and max(numbers) > _LOG_SPAN * min(numbers):
            axes.set_xscale("log")
    else:
        known = list(dict.fromkeys(map(str, values)))
        places = [float(known.index(str(value))) for value in values]
        axes.set_xticks(range(len(known)), known)
    axes.plot(places, [run.figure for run in runs], "o", color=_COLOUR, alpha=0.7)
    best = [(place, run.figure) for place, run in zip(places, runs, strict=True) if run.is_best]
    axes.plot([each[0] for each in best], [each[1] for each in best], "o", color=_BEST, markersize=9, label="best")
    if best:
        axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
