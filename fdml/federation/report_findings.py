"""Sections of a run's report on what was found out beside the run: who brings what, and other schemes."""

from __future__ import annotations

from collections.abc import Iterator

from fdml.federation.findings import Brought, OtherSchemes
from fdml.monitor.charts import BarChart
from fdml.monitor.figures import TITLES
from fdml.monitor.history import Gain
from fdml.monitor.report import Block, Charts, Section, Table, Text

_TITLE = "Who brings what"


def brought_section(found: Brought | None, party: str, label_party: str) -> Section:
    """Every party's share of what all are worth."""
    if party != label_party:
        return Section(_TITLE, (Text(f"It is computed with labels: see the report of {label_party}.", "note"),))
    if found is None:
        return Section(
            _TITLE,
            (
                Text("It was not computed. While the parties stand by, this does it, and it is on this page then:"),
                Text("fdml explain party.toml && fdml report party.toml", "command"),
            ),
        )
    metric = TITLES.get(found.metric, found.metric)
    bars = tuple((name, max(0.0, gain.value or 0.0)) for name, gain in found.shares.items())
    rows = tuple((name, _gain(gain), _gain(found.without[name])) for name, gain in found.shares.items())
    return Section(
        _TITLE,
        (
            Charts((BarChart(f"Share of the {metric} over a constant", "party", bars),)),
            Table(("party", f"share of {metric}", "lost without it"), rows),
            Text(
                f"Shapley values over all coalitions on {found.rows:,} labelled rows, version {found.version[:12]}. "
                f"Where an interval covers 0, nothing certain is brought.",
                "note",
            ),
        ),
    )


def scheme_blocks(found: OtherSchemes | None, *, same_rows: bool) -> Iterator[Block]:
    """Late fusion and pooled training, where `fdml compare` has measured them; perhaps on the run's held-out rows."""
    if found is None:
        return
    rows = tuple((name, f"{loss:.4f}", f"{metric:.4f}") for name, (loss, metric) in found.figures.items())
    metric = TITLES.get(found.metric, found.metric)
    yield Table(
        ("scheme", "test loss", metric), rows, "The same settings under all schemes, by `fdml compare` in one place."
    )
    seeds = f"mean of {found.seeds} seed{'s' * (found.seeds != 1)}"
    whose = (
        f"Of the same {found.rows:,} held-out rows as the figures above, {seeds}; joint is trained again there."
        if same_rows
        else f"Of its own {found.rows:,} held-out rows, {seeds}: compare these figures with each other, not with those "
        f"above."
    )
    yield Text(f"{whose} Late fusion is what takes no joint training.", "note")


def _gain(gain: Gain) -> str:
    if gain.value is None:
        return "-"
    if gain.low is None or gain.high is None:
        return f"{gain.value:+.4f}"
    return f"{gain.value:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})"
