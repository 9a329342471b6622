"""Plots of what parties, or a party's own columns, bring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fdml.monitor.history import Gain
from fdml.monitor.plots import new_figure

_COLOUR = "#2b6cb0"
_MOST_BARS = 20


def draw_shares(shares: Mapping[str, Gain], metric: str, path: Path) -> None:
    """Write a PNG with a bar for each party's share and its interval."""
    names = list(shares)
    values = [each.value or 0.0 for each in shares.values()]
    below = [
        value - (each.low if each.low is not None else value)
        for value, each in zip(values, shares.values(), strict=True)
    ]
    above = [
        (each.high if each.high is not None else value) - value
        for value, each in zip(values, shares.values(), strict=True)
    ]
    figure = new_figure(6.5, 1.2 + 0.5 * len(names))
    axes = figure.subplots()
    axes.barh(names[::-1], values[::-1], xerr=[below[::-1], above[::-1]], color=_COLOUR, capsize=3)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel(f"share of {metric} over a constant, 95 % interval")
    figure.savefig(path, dpi=110)


def draw_columns(importance: Mapping[str, float], path: Path) -> None:
    """Write a PNG with a bar for each of the most important columns."""
    names = list(importance)[:_MOST_BARS]
    figure = new_figure(6.5, 1.2 + 0.3 * len(names))
    axes = figure.subplots()
    axes.barh(names[::-1], [importance[name] for name in names[::-1]], color=_COLOUR)
    axes.set_xlabel("change of the local prediction when the column is dealt out anew")
    figure.savefig(path, dpi=110)
