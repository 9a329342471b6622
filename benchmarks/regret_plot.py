"""The paper's theorem as a plot: average regret against steps on logarithmic axes, one line per staleness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fdml.monitor.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#2b6cb0", "#2f855a", "#d98c21", "#c53030")
_POINTS = 300


@dataclass(frozen=True)
class RegretCurve:
    """The average regret with one staleness."""

    staleness: int
    averages: Sequence[NDArray[np.float64]]
    """Of every seed: the mean regret of the first T steps, for every T."""
    slope: float
    """Mean over the seeds."""


def draw_regret(curves: Sequence[RegretCurve], fitted_from: int, path: Path) -> None:
    """Write a PNG; slopes were fitted from step `fitted_from` on."""
    figure = new_figure(8.5, 5.6)
    axes = figure.subplots()
    for number, curve in enumerate(curves):
        _draw(axes, curve, _COLOURS[number % len(_COLOURS)], 1.2 * (len(curves) - number))
    _draw_promise(axes, curves[0], fitted_from)
    axes.axvspan(1, fitted_from, color="#8c8c8c", alpha=0.12, linewidth=0)
    axes.set_xlim(1, len(curves[0].averages[0]))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("steps T")
    axes.set_ylabel("mean regret of the first T steps")
    axes.set_title(f"Average regret; slopes fitted from T = {fitted_from}", loc="left", fontweight="bold")
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def _draw(axes: Axes, curve: RegretCurve, colour: str, thickness: float) -> None:
    """The mean over the seeds, and a band for its extremes. Lines may lie on each other: the first are the thickest."""
    stacked = np.stack(curve.averages)
    at = np.unique(np.geomspace(1, stacked.shape[1], _POINTS).astype(np.int64))
    seen = stacked[:, at - 1]
    axes.fill_between(at, seen.min(axis=0), seen.max(axis=0), color=colour, alpha=0.12, linewidth=0)
    name = f"staleness {curve.staleness}: slope {curve.slope:.2f}"
    axes.plot(at, seen.mean(axis=0), color=colour, linewidth=thickness, label=name)


def _draw_promise(axes: Axes, curve: RegretCurve, first: int) -> None:
    """A line of the slope that the theorem promises, a little above the rest."""
    steps = len(curve.averages[0])
    begin = 1.5 * max(float(average[first - 1]) for average in curve.averages)
    axes.plot(
        [first, steps], [begin, begin * (first / steps) ** 0.5], "--", color="#4a4a4a", label="1 / sqrt(T): slope -0.50"
    )
