"""The paper's four plots: objective, test loss and metric against epoch, objective against time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fdml.extras import need
from fdml.monitor.figures import TITLES
from fdml.monitor.history import EpochRecord, LearningCurve, Scheme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES: dict[Scheme, tuple[str, str]] = {
    "alone": ("#8c8c8c", "--"),
    "late fusion": ("#d98c21", "-."),
    "pooled": ("#2b6cb0", "-"),
    "joint": ("#c53030", "-"),
}
_MARKED_BELOW = 4
"""A curve of fewer points has them marked: a line through one point cannot be seen."""
Measure = Callable[[EpochRecord], float]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    need("matplotlib", "a plot")
    from matplotlib.figure import Figure  # noqa: PLC0415 (an extra)

    return Figure(figsize=(width, height), layout="constrained")


def draw_comparison(curves: Sequence[LearningCurve], metric: str, path: Path) -> None:
    """Write a PNG with one row of four plots per model."""
    models = list(dict.fromkeys(curve.model for curve in curves))
    figure = new_figure(17, 3.9 * len(models))
    grid = figure.subplots(len(models), 4, squeeze=False)
    for model, axes in zip(models, grid, strict=True):
        of_model = [curve for curve in curves if curve.model == model]
        _draw(axes[0], of_model, f"{model}: training objective", "epoch", _epoch, lambda r: r.train_objective)
        _draw(axes[1], of_model, f"{model}: test loss", "epoch", _epoch, lambda r: r.test_loss)
        _draw(axes[2], of_model, f"{model}: test {TITLES[metric]}", "epoch", _epoch, lambda r: r.test_metric)
        _draw(axes[3], of_model, f"{model}: training objective", "seconds", _seconds, lambda r: r.train_objective)
        axes[0].legend(frameon=False)
    figure.savefig(path, dpi=110)


def _epoch(record: EpochRecord) -> float:
    return record.epoch


def _seconds(record: EpochRecord) -> float:
    return record.seconds


def _draw(axes: Axes, curves: Sequence[LearningCurve], title: str, across: str, x: Measure, y: Measure) -> None:
    for curve in curves:
        colour, line = _STYLES[curve.scheme]
        axes.plot(
            [x(record) for record in curve.records],
            [y(record) for record in curve.records],
            line,
            color=colour,
            label=curve.scheme,
            marker="o" if len(curve.records) < _MARKED_BELOW else None,
            markersize=4,
        )
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
