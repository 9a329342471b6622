"""fdml status."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fdml.cli.options import JsonOption, ServerOption
from fdml.cli.output import check_writable, echo, stdout, write_json
from fdml.federation import status as runs
from fdml.monitor.figures import figures_text
from fdml.monitor.status import PartyStatus, RunStatus

_SHOWN_EPOCHS = 10
"""The last ones; a file of --json has all."""
_LEFT = ("party", "state", "waits for")
_HEADINGS = ("party", "state", "step", "waits for", "waited", "sent", "received", "starts")


def status(
    path: Annotated[
        Path, typer.Argument(help="A party's party.toml; or the federation.toml, with the server's folder beside it.")
    ],
    run: Annotated[str | None, typer.Option(help="The name of the run.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="The run has no TLS.")] = False,
    server: ServerOption = None,
    json: JsonOption = None,
) -> None:
    """Show who is at which step, who waits for whom and since when.

    Metrics travel sealed for the parties: only a party, asked with its party.toml, shows their figures.
    """
    check_writable(json)
    read = runs.status(path, run, plain=plain, server=server)
    found = read.status
    echo(f"run {found.run}")
    stdout.print(_table(found))
    for each in read.metrics[-_SHOWN_EPOCHS:]:
        echo(f"epoch {each.epoch}: {figures_text(each.test_loss, each.test_metric, read.metric)}")
    for party in found.parties:
        if party.stands_out:
            echo(f"party {party.name} stands out: {_size_text(party)}; ask it")
    if found.refused:
        echo("refused: " + ", ".join(f"{count} {reason}" for reason, count in sorted(found.refused.items())))
    write_json(json, {**asdict(found), "history": [asdict(each) for each in read.metrics]})


def _size_text(party: PartyStatus) -> str:
    if party.largest_prediction is None:
        return "its predictions are far larger than before, or than those of the others"
    return f"its predictions reach {party.largest_prediction:.3g}"


def _table(found: RunStatus) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in _LEFT else "right")
    for party in found.parties:
        table.add_row(*_cells(party, found.steps))
    return table


def _counted(party: PartyStatus) -> tuple[str, str, str]:
    """How long it waited and what went through the server; a server that has closed a finished run knows no more."""
    if party.finished and not party.bytes_in:
        return "-", "-", "-"
    return f"{party.waited_seconds:.1f} s", f"{party.bytes_in / 1e6:.1f} MB", f"{party.bytes_out / 1e6:.1f} MB"


def _cells(party: PartyStatus, steps: int) -> tuple[str, ...]:
    return (
        party.name,
        party.state,
        f"{party.served + 1}/{steps}",
        ", ".join(party.waits_for) + (f" for {party.waiting_seconds:.1f} s" if party.waits_for else ""),
        *_counted(party),
        str(party.incarnation),
    )
