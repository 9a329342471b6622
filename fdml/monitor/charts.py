"""Small charts as SVG, drawn here: lines and bars whose colours are the page's, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from fdml.monitor.thinning import Point, thinned

WIDTH, HEIGHT = 400, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 36
_TICKS = 5
_MARKED_BELOW = 4
"""A line of fewer points has them marked, unless it is for comparison: a line through one point cannot be seen."""
_MARGIN = 0.06
"""Of the span of values, left free above and below."""


@dataclass(frozen=True)
class Series:
    """A line of a chart."""

    name: str
    points: tuple[Point, ...]
    style: str = "joint"
    """Of the page's line styles."""


@dataclass(frozen=True)
class LineChart:
    """Values against a number, such as the epoch."""

    title: str
    across: str
    series: tuple[Series, ...]
    levels: tuple[Series, ...] = field(default=())
    """Values that hold all along, each a series of one point whose first number means nothing."""


@dataclass(frozen=True)
class BarChart:
    """Values of things that have names."""

    title: str
    across: str
    bars: tuple[tuple[str, float], ...]
    style: str = "pooled"


def line_chart(chart: LineChart) -> str:
    """The SVG of a line chart; points that are no finite numbers are left out."""
    drawn = [(each, _finite(each.points)) for each in chart.series]
    flat = [(each, _finite(each.points)) for each in chart.levels]
    xs = [x for _, points in drawn for x, _ in points]
    ys = [y for _, points in (*drawn, *flat) for _, y in points]
    if not xs or not ys:
        return _empty(chart.title)
    frame = _Frame(min(xs), max(xs), *_with_margin(min(ys), max(ys)))
    parts = [*frame.axes(chart.across)]
    for each, points in flat:
        height = _number(frame.y(points[0][1])) if points else "0"
        if points:
            parts.append(
                f'<line class="line {each.style}" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height}" y2="{height}"/>'
            )
    for each, points in drawn:
        parts += _line(frame, each.style, thinned(points))
    return _svg(chart.title, parts)


def bar_chart(chart: BarChart) -> str:
    """The SVG of a bar chart of values from 0 up; what is below, or no finite number, has no bar."""
    values = [max(0.0, value) if math.isfinite(value) else 0.0 for _, value in chart.bars]
    if not values:
        return _empty(chart.title)
    frame = _Frame(0.0, float(len(values)), 0.0, max(values) * (1 + _MARGIN) or 1.0)
    parts = list(frame.value_axis())
    width = (WIDTH - _LEFT - _RIGHT) / len(values)
    for number, ((name, _), value) in enumerate(zip(chart.bars, values, strict=True)):
        left, top = _LEFT + width * (number + 0.15), frame.y(value)
        parts.append(
            f'<rect class="bar {chart.style}" x="{_number(left)}" y="{_number(top)}" width="{_number(0.7 * width)}" '
            f'height="{_number(HEIGHT - _BOTTOM - top)}"/>'
        )
        parts.append(_text(left + 0.35 * width, HEIGHT - _BOTTOM + 15, name, "middle"))
    parts.append(_text((WIDTH + _LEFT - _RIGHT) / 2, HEIGHT - 4, chart.across, "middle"))
    return _svg(chart.title, parts)


def swatch(style: str) -> str:
    """A short piece of a line, for the legend."""
    return (
        f'<svg class="swatch" viewBox="0 0 26 8" aria-hidden="true"><line class="line {style}" x1="1" x2="25" y1="4" '
        f'y2="4"/></svg>'
    )


@dataclass(frozen=True)
class _Frame:
    """From values to places."""

    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        span = self.right - self.left
        share = (value - self.left) / span if span else 0.5
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - _TOP - _BOTTOM)

    def value_axis(self) -> Iterable[str]:
        for tick, name in _ticks(self.low, self.high):
            at = _number(self.y(tick))
            yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'
            yield _text(_LEFT - 6, self.y(tick) + 4, name, "end")

    def axes(self, across: str) -> Iterable[str]:
        yield from self.value_axis()
        for tick, name in _ticks(self.left, self.right) if self.right > self.left else [(self.left, f"{self.left:g}")]:
            yield _text(self.x(tick), HEIGHT - _BOTTOM + 15, name, "middle")
        yield _text((WIDTH + _LEFT - _RIGHT) / 2, HEIGHT - 4, across, "middle")


def _line(frame: _Frame, style: str, points: Sequence[Point]) -> Iterable[str]:
    places = [f"{_number(frame.x(x))},{_number(frame.y(y))}" for x, y in points]
    if len(places) > 1:
        yield f'<polyline class="line {style}" points="{" ".join(places)}"/>'
    if len(places) < _MARKED_BELOW and style != "alone":
        for place in places:
            x, _, y = place.partition(",")
            yield f'<circle class="mark {style}" cx="{x}" cy="{y}" r="3.5"/>'


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round numbers from low to high, about five of them, with as many digits as tell them apart."""
    rough = max(high - low, 1e-12 * max(abs(low), abs(high)), 1e-300) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if step / power == 2.5 else 0))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(number * step, f"{number * step:,.{digits}f}") for number in range(first, last + 1)]


def _with_margin(low: float, high: float) -> tuple[float, float]:
    span = max(high - low, 1e-9 * max(abs(low), abs(high))) or 0.1
    return low - _MARGIN * span, high + _MARGIN * span


def _finite(points: Iterable[Point]) -> list[Point]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{_number(x)}" y="{_number(y)}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(title: str, parts: Iterable[str]) -> str:
    label = escape(f"Chart: {title}. The table below it has the same numbers.", quote=True)
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _empty(title: str) -> str:
    return _svg(title, [_text(WIDTH / 2, HEIGHT / 2, "no figures", "middle")])
