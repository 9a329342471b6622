"""fdml explain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import DeadlineOption, JsonOption, ModelRunOption, PlainOption, ServerOption, VersionOption
from fdml.cli.output import check_plot, check_writable, echo, stderr, write_json
from fdml.errors import SettingsError
from fdml.federation.findings import keep_shares
from fdml.federation.own_columns import OwnColumns, own_columns, write_reasons
from fdml.federation.predicting import asking, rows_to_evaluate
from fdml.federation.run_folder import RUNS
from fdml.monitor.figures import TITLES
from fdml.monitor.history import Gain, metric_of
from fdml.monitor.share_plots import draw_columns, draw_shares
from fdml.monitor.terminal import RunTerminal
from fdml.serving.explaining import MOST_ROWS, Explained
from fdml.serving.explaining import explain as explain_rows

_SHOWN = 15


def explain(
    party: Annotated[Path, typer.Argument(help="The label party's party.toml; with --home any party's.")],
    home: Annotated[
        bool, typer.Option("--home", help="This party's own columns instead; nothing is asked, nothing leaves.")
    ] = False,
    rows: Annotated[
        Path | None, typer.Option(help="A CSV or Parquet file with ids and labels; else the run's held-out rows.")
    ] = None,
    most: Annotated[int, typer.Option(min=50, help="How many rows to look at, at most.")] = MOST_ROWS,
    reasons: Annotated[
        Path | None, typer.Option(help="With --home: write each row's reasons to this CSV file.")
    ] = None,
    run: ModelRunOption = None,
    version: VersionOption = None,
    deadline: DeadlineOption = None,
    plain: PlainOption = False,
    server: ServerOption = None,
    json: JsonOption = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the shares to this PNG file.")] = None,
) -> None:
    """Say which party brings what to the joint score, and at home which of a party's own columns matter.

    Shares are exact Shapley values of the metric over all coalitions of parties, on labelled rows that are asked for
    as predictions are: each answered row is a release that its party counts, and the asker learns each party's part
    of it. With three or more parties it needs serving.absent = "calibrated".
    """
    check_writable(json, reasons)
    check_plot(plot)
    if home:
        _explain_home(party, run, version, most, reasons, json, plot)
        return
    if reasons is not None:
        raise SettingsError("--reasons names a party's own columns; it goes with --home")
    with asking(
        party, run=run, version=version, plain=plain, server=server, seconds=deadline, on_event=RunTerminal(stderr)
    ) as asker:
        facts = asker.own.facts
        found = explain_rows(asker, rows_to_evaluate(party, asker, rows), most)
    metric = metric_of(facts.run.task, facts.run.loss)
    keep_shares(party.parent / RUNS / facts.run.name, facts.version, metric, found.rows, found.found)
    for line in share_lines(found, TITLES.get(metric, metric), facts.run.name, facts.version):
        echo(line)
    if plot is not None:
        draw_shares(found.found.shares, TITLES.get(metric, metric), plot)
    write_json(json, {"run": facts.run.name, "version": facts.version, "metric": metric, **asdict(found)})


def share_lines(found: Explained, metric: str, run: str, version: str) -> Iterator[str]:
    """What a person reads of the parties' shares."""
    shares = found.found
    yield f"run {run!r}, version {version[:12]}: {found.rows:,} of {found.asked:,} rows are held by all parties"
    yield f"{metric} {_figure(shares.worth)}; a constant has {shares.nothing:.4f}"
    width = max(map(len, shares.shares))
    for name, share in shares.shares.items():
        yield f"{name.ljust(width)}  share {_gain(share)}, lost without it {_gain(shares.without[name])}"
    yield "shares add up to the gain over the constant; where an interval covers 0, nothing certain is brought"
    yield f"released: each other party has answered {found.asked:,} rows, which its ledger counts as predictions"
    if found.singly:
        yield "this party now knows each other party's part of these rows"


def column_lines(found: OwnColumns) -> Iterator[str]:
    """What a person reads of a party's own columns."""
    yield f"run {found.run!r}, {found.party}'s own {found.kind} model, {found.rows:,} of its rows; nothing was asked"
    names = list(found.importance)[:_SHOWN]
    width = max(map(len, names))
    for name in names:
        adds = "" if found.contribution is None else f", adds {found.contribution[name]:.4f} on average"
        yield f"{name.ljust(width)}  moves predictions by {found.importance[name]:.4f}{adds}"
    if len(found.importance) > _SHOWN:
        yield f"and {len(found.importance) - _SHOWN} more; --json has all"


def _explain_home(
    party: Path, run: str | None, version: str | None, most: int, reasons: Path | None, json: Path | None,
    plot: Path | None,
) -> None:  # fmt: skip
    found = own_columns(party, run=run, version=version, most=most)
    if reasons is not None:
        write_reasons(found, reasons)
    for line in column_lines(found):
        echo(line)
    if plot is not None:
        draw_columns(found.importance, plot)
    kept = ("run", "party", "kind", "rows", "importance", "contribution", "coefficients")
    write_json(json, {name: getattr(found, name) for name in kept})


def _figure(gain: Gain) -> str:
    return _interval(f"{gain.value:.4f}", gain, ".4f")


def _gain(gain: Gain) -> str:
    return _interval(f"{gain.value:+.4f}", gain, "+.4f")


def _interval(text: str, gain: Gain, form: str) -> str:
    return text if gain.low is None or gain.high is None else f"{text} ({gain.low:{form}} to {gain.high:{form}})"
