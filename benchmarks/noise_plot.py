"""The paper's noise figure: AUC and loss of joint training against the noise on every prediction that leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fdml.monitor.history import Scheme
from fdml.monitor.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_JOINT = "#c53030"
_LOOK: dict[Scheme, tuple[str, str]] = {
    "alone": ("#8c8c8c", "--"),
    "late fusion": ("#d98c21", "-."),
    "pooled": ("#2b6cb0", "-"),
}
"""As in the other plots."""


class Band(NamedTuple):
    """The mean of one figure over seeds, and its extremes."""

    mean: float
    low: float
    high: float


class Level(NamedTuple):
    """Joint training at one level of noise."""

    noise: float
    """Standard deviation."""
    epsilon: float | None
    """None without noise."""
    auc: Band
    loss: Band
    recalibrated: Band


@dataclass(frozen=True)
class NoiseCurve:
    """One kind of model at all levels, and what it gives without joint training."""

    model: str
    levels: Sequence[Level]
    """From the least noise to the most."""
    lines: dict[Scheme, tuple[float, float]]
    """AUC and loss of the other schemes, which no noise touches."""


def draw_noise(curves: Sequence[NoiseCurve], terms: str, path: Path) -> None:
    """Write a PNG with one row per model: AUC on the left, loss on the right. `terms` are those of epsilon."""
    figure = new_figure(12, 4.6 * len(curves))
    grid = figure.subplots(len(curves), 2, squeeze=False, sharex=True, sharey="col")
    for curve, (left, right) in zip(curves, grid, strict=True):
        _draw_auc(left, curve)
        _draw_loss(right, curve)
        for axes in (left, right):
            _dress(axes, curve, terms)
    figure.savefig(path, dpi=110)


def _draw_auc(axes: Axes, curve: NoiseCurve) -> None:
    _draw_band(axes, curve, [level.auc for level in curve.levels], "joint", "-o")
    _draw_lines(axes, curve, 0)
    axes.set_title(f"{curve.model}: test AUC", loc="left", fontweight="bold")


def _draw_loss(axes: Axes, curve: NoiseCurve) -> None:
    _draw_band(axes, curve, [level.loss for level in curve.levels], "joint, as it is", ":s")
    _draw_band(axes, curve, [level.recalibrated for level in curve.levels], "joint, recalibrated", "-o")
    _draw_lines(axes, curve, 1)
    axes.set_title(f"{curve.model}: test loss", loc="left", fontweight="bold")


def _draw_band(axes: Axes, curve: NoiseCurve, bands: Sequence[Band], name: str, line: str) -> None:
    across = [level.noise for level in curve.levels]
    axes.fill_between(across, [b.low for b in bands], [b.high for b in bands], color=_JOINT, alpha=0.2, linewidth=0)
    axes.plot(across, [b.mean for b in bands], line, color=_JOINT, markersize=5, label=name, zorder=3)


def _draw_lines(axes: Axes, curve: NoiseCurve, which: int) -> None:
    for scheme, figures in curve.lines.items():
        colour, line = _LOOK[scheme]
        axes.axhline(figures[which], linestyle=line, color=colour, linewidth=1.4, label=scheme)


def _dress(axes: Axes, curve: NoiseCurve, terms: str) -> None:
    """Noise below, what it is worth above."""
    at = [level.noise for level in curve.levels]
    axes.set_xticks(at, [f"{noise:g}" for noise in at])
    axes.tick_params(labelbottom=True, labelleft=True)
    axes.set_xlabel("noise on each prediction that leaves (standard deviation)")
    above = axes.secondary_xaxis("top")
    worth = ["∞" if level.epsilon is None else f"{level.epsilon:.0f}" for level in curve.levels]
    above.set_xticks(at, worth)
    above.set_xlabel(f"epsilon ({terms})")
    above.spines["top"].set_visible(False)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False)
