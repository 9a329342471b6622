"""fdml align."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fdml.cli.options import PlainOption, RunOption, ServerOption, WaitOption, YesOption
from fdml.cli.output import check_writable, command, echo, person, resumable, stderr, stdout, write_json
from fdml.federation import join as parties
from fdml.monitor.terminal import RunTerminal
from fdml.party.alignment import AlignmentReport
from fdml.party.settings import read_party
from fdml.privacy.disclosures import DISCLOSURES, POINTERS
from fdml.settings import RunSettings
from fdml.settings.federation import read_run

_BY_POSITION = ("The rows were matched by position; all learn their number.",)


def align(
    party: Annotated[Path, typer.Argument(help="This party's party.toml.")],
    run: RunOption = None,
    plain: PlainOption = False,
    server: ServerOption = None,
    wait: WaitOption = None,
    yes: YesOption = False,
    json: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
) -> None:
    """Find the rows that all parties hold, without showing ids, and put this party's features in their order.

    Needs the server and all other parties; `fdml join` does it too, if it was not done before. Before anyone is told
    which rows are shared, every party sees how many rows each brought and how many are shared, and consents: by
    align.max_rows in party.toml, by --yes, or by answering the question on a terminal.
    """
    check_writable(json)
    settings = read_party(party)
    agreed = read_run(run, settings.federation)
    with resumable(command("align", party, run)):
        listener = RunTerminal(stderr)
        report = parties.align(
            party, run, plain=plain, server=server, wait=wait, yes=yes, ask=person(), on_event=listener
        ).report
    stdout.print(_table(settings.party, report, agreed))
    for line in _lines(report):
        echo(line)
    echo("What this showed to whom:")
    sentences = DISCLOSURES[agreed.align] if report.ids else _BY_POSITION
    for sentence in sentences if agreed.pointing_party is None else POINTERS:
        echo(f"- {sentence}")
    write_json(json, {"alignment": {"shared_rows": report.shared, **asdict(report)}})


def _table(party: str, report: AlignmentReport, run: RunSettings) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("party")
    for heading in ("rows", "shared", "lost"):
        table.add_column(heading, justify="right")
    for name, rows in report.rows.items():
        lost = 1 - report.shared / rows if rows else 0.0
        found = (f"{report.shared:,}", f"{lost:.1%}") if run.pointing_party in (None, name) else ("", "")
        table.add_row(name, f"{rows:,}", *found, style="bold" if name == party else None)
    return table


def _lines(report: AlignmentReport) -> list[str]:
    return [
        f"{report.train:,} rows to train on, {report.held_out:,} held out",
        *report.remarks(),
        f"{report.mode}: {report.seconds:.1f} s, {report.bytes_sent:,} bytes sent, {report.bytes_received:,} received",
    ]
