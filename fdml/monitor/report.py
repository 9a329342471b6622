"""A report as one file of sentences, tables and charts. It opens from disk and needs no network and no script.

Everything in it is escaped here. The content security policy forbids all but the one style, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from typing import Literal

from fdml.monitor.charts import BarChart, LineChart, Series, bar_chart, line_chart, swatch
from fdml.monitor.thinning import thinned

_PAGE = resources.files("fdml.monitor").joinpath("page")
STYLE = "".join(_PAGE.joinpath(name).read_text(encoding="utf-8") for name in ("theme.css", "report.css"))
"""Light and dark, from a phone's width on, and on paper. Colours are names, so charts need none of their own."""
Tone = Literal["", "good", "fair", "bad"]
_MOST_ROWS = 200
"""Of a table beside a chart."""
_NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?( ?(%|s|MB|kB|B))?( \(.*\))?|-|")


@dataclass(frozen=True)
class Text:
    """A sentence."""

    text: str
    kind: Literal["plain", "note", "warning", "command"] = "plain"


@dataclass(frozen=True)
class Table:
    """Rows of cells, all of them text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    main: int = -1
    """The row that stands out; -1 for none."""


@dataclass(frozen=True)
class Charts:
    """Charts beside each other, as the width allows."""

    charts: tuple[LineChart | BarChart, ...]


Block = Text | Table | Charts


@dataclass(frozen=True)
class Section:
    """A part of a report."""

    title: str
    blocks: tuple[Block, ...] = field(default=())

    @property
    def anchor(self) -> str:
        """Where a link leads."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Report:
    """What a reader wants first stands first: one sentence that answers what the run brought."""

    title: str
    answer: str
    tone: Tone
    about: str
    sections: tuple[Section, ...]
    footer: str = ""


def render(report: Report) -> str:
    """The whole page."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    links = "".join(f'<a href="#{each.anchor}">{escape(each.title)}</a>' for each in report.sections)
    sections = "\n".join(map(_section, report.sections))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<header>\n"
        f"<h1>{escape(report.title)}</h1>\n"
        f'<p class="answer {report.tone}">{escape(report.answer)}</p>\n'
        f'<p class="about">{escape(report.about)}</p>\n<nav aria-label="Sections">{links}</nav>\n</header>\n'
        f"{sections}\n<footer>{escape(report.footer)}</footer>\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    blocks = "\n".join(map(_block, section.blocks))
    return f'<section id="{section.anchor}">\n<h2>{escape(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block) -> str:
    match block:
        case Text(text, "command"):
            return f"<pre>{escape(text)}</pre>"
        case Text(text, "plain"):
            return f"<p>{_words(text)}</p>"
        case Text(text, kind):
            return f'<p class="{kind}">{_words(text)}</p>'
        case Table():
            return _table(block)
        case Charts(charts):
            return f'<div class="charts">{"".join(map(_figure, charts))}</div>'


def _words(text: str) -> str:
    """A sentence, escaped; what stands between backticks is to be typed."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _table(table: Table) -> str:
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.headings)
    numbers = [bool(cells) and all(_NUMBER.fullmatch(each) for each in cells) for cells in columns]
    classes = [' class="n"' if is_number else "" for is_number in numbers]
    head = "".join(
        f'<th scope="col"{kind}>{escape(each)}</th>' for each, kind in zip(table.headings, classes, strict=True)
    )
    rows = "".join(_row(cells, classes, number == table.main) for number, cells in enumerate(table.rows))
    caption = f"<caption>{_words(table.caption)}</caption>" if table.caption else ""
    inner = f"{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{inner}</table></div>'


def _row(cells: Sequence[str], classes: Sequence[str], is_main: bool) -> str:
    inner = "".join(f"<td{kind}>{escape(each)}</td>" for each, kind in zip(cells, classes, strict=True))
    return f'<tr class="main">{inner}</tr>' if is_main else f"<tr>{inner}</tr>"


def _figure(chart: LineChart | BarChart) -> str:
    if isinstance(chart, BarChart):
        drawn, legend, table = bar_chart(chart), "", _bar_table(chart)
    else:
        shown = (*chart.series, *chart.levels)
        drawn, legend, table = line_chart(chart), _legend(shown) if len(shown) > 1 else "", _line_table(chart)
    return (
        f"<figure><h3>{escape(chart.title)}</h3>{drawn}{legend}"
        f"<details><summary>As a table</summary>{_table(table)}</details></figure>"
    )


def _legend(series: Iterable[Series]) -> str:
    items = "".join(f"<li>{swatch(each.style)}{escape(each.name)}</li>" for each in series)
    return f'<ul class="legend">{items}</ul>'


def _bar_table(chart: BarChart) -> Table:
    return Table((chart.across, chart.title), tuple((name, f"{value:g}") for name, value in chart.bars))


def _line_table(chart: LineChart) -> Table:
    """One row for each place across; series that have nothing there leave it empty."""
    series = [thinned(each.points, _MOST_ROWS) for each in chart.series]
    places = sorted({x for points in series for x, _ in points})
    values = [dict(points) for points in series]
    rows = [
        (f"{x:g}", *(figure(each.get(x)) for each in values), *(figure(each.points[0][1]) for each in chart.levels))
        for x in places
    ]
    names = (*(each.name for each in chart.series), *(each.name for each in chart.levels))
    return Table((chart.across, *names), tuple(rows))


def figure(value: float | None) -> str:
    """A figure in four digits; a dash where there is none."""
    return "-" if value is None else f"{value:.4f}"
