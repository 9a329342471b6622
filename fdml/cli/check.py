"""fdml check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fdml.cli.options import JsonOption, PlainOption
from fdml.cli.output import check_writable, echo, stdout, write_json
from fdml.data.id_profile import phone_lines
from fdml.data.profile import ColumnProfile, DataProfile
from fdml.federation import check as parties
from fdml.federation.check import CheckReport
from fdml.federation.estimate import Estimate
from fdml.privacy.statement import Statement
from fdml.protocol.quoting import quoted


def check(
    party: Annotated[Path, typer.Argument(help="This party's party.toml.")],
    run: Annotated[
        Path | None, typer.Option(help="The run.toml to check for, if not the one beside federation.toml.")
    ] = None,
    plain: PlainOption = False,
    json: JsonOption = None,
) -> None:
    """Look at a party at home, before anyone waits for it: no network, and nothing is changed.

    Prints what becomes of every column, how ids look (to compare over the phone), what a run would show to whom and
    cost, and all faults at once with the way out. No value of any row is printed. Exit code 1 if there is a fault.
    """
    check_writable(json)
    report = parties.check(party, run, plain=plain)
    if report.data is not None:
        _print_data(report.data, report)
    if report.shows:
        echo(f"\nWhat finding the shared rows would show of {report.party}:")
        for sentence in report.shows:
            echo(f"- {sentence}")
    if report.statement is not None:
        echo(f"\nWhat training would show of {report.party}:")
        stdout.print(_exposures(report.statement))
    if report.estimate is not None:
        echo("\nAn estimate, if all rows are shared; the slowest party decides, and lines and machines differ:")
        for line in estimate_lines(report.estimate):
            echo(f"- {line}")
    for title, found in (("warnings", report.warnings), ("faults", report.faults)):
        if found:
            echo(f"\n{len(found)} {title if len(found) > 1 else title.removesuffix('s')}:")
            for number, text in enumerate(found, 1):
                echo(f"{number}. {text}")
    echo(f"\n{report.party or party}: " + ("not ready, see the faults" if report.faults else "ready to join"))
    write_json(json, parties.as_json(report))
    if report.faults:
        raise typer.Exit(1)


def _print_data(data: DataProfile, report: CheckReport) -> None:
    test = "" if report.test is None else f", {report.test.rows:,} test rows"
    echo(f"{data.place}: {data.rows:,} rows{test}")
    if data.columns:
        stdout.print(_columns(data))
    if report.classes is not None:
        found = report.classes
        echo(f"labels: {found.count} classes, the rarest {found.smallest_share:.1%} of the rows")
    if data.ids is not None:
        echo("\nThe ids, to compare over the phone:")
        for line in phone_lines(data.ids):
            echo(f"- {line}")


def _columns(data: DataProfile) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("column", "kind"):
        table.add_column(heading)
    for heading in ("missing", "distinct", "features"):
        table.add_column(heading, justify="right")
    table.add_column("", overflow="fold")
    for column in data.columns:
        table.add_row(*map(Text, _cells(column, data.rows)), style="bold" if column.faults else None)
    return table


def _cells(column: ColumnProfile, rows: int) -> Iterator[str]:
    yield quoted(column.name)[1:-1]
    yield column.kind
    if column.kind == "ignored":
        yield from ("", "", "", "")
        return
    yield f"{column.missing:,} ({column.missing / rows:.1%})" if column.missing else "0"
    yield f"{'about ' * column.is_estimate}{column.distinct:,}"
    yield f"{column.features:,}" if column.features else ""
    yield "FAULT, see below" if column.faults else "; ".join(column.warnings)


def _exposures(statement: Statement) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("who", "what of this party", "in which form", "how often", "under which protection"):
        table.add_column(heading, overflow="fold")
    for each in statement.exposures:
        table.add_row(*map(Text, (each.role, each.saw, each.form, each.times, each.protection)))
    return table


def estimate_lines(found: Estimate) -> Iterator[str]:
    """The estimate in words."""
    yield (
        f"{found.epochs} epochs over {found.train_rows:,} rows in batches of {found.batch_size}, {found.features:,} "
        f"features, {found.held_out_rows:,} rows held out, {found.exchanges:,} exchanges of {found.value_bits} bits a "
        f"prediction"
    )
    training = "not known for this kind of model" if found.train_seconds is None else _seconds(found.train_seconds)
    yield (
        f"time: {_seconds(found.read_seconds)} to read, {_seconds(found.align_seconds)} to find the shared rows, "
        f"{training} to train"
    )
    yield f"memory: {_bytes(found.memory_bytes)}, and {_bytes(found.disk_bytes)} of features on disk, mapped"
    yield f"traffic: {_bytes(found.sent_bytes)} sent, {_bytes(found.received_bytes)} received"


def _seconds(seconds: float) -> str:
    if seconds < 1.0:
        return "under 1 s"
    return f"about {seconds:.0f} s" if seconds < 120.0 else f"about {seconds / 60.0:.0f} min"


def _bytes(count: int) -> str:
    return f"about {count / 1e9:.1f} GB" if count >= 1e9 else f"about {max(count / 1e6, 0.1):.1f} MB"
