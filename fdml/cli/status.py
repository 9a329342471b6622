"""fdml status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToDict
from rich.table import Table

from fdml.cli.output import check_writable, echo, figures, stdout, write_json
from fdml.federation import status as runs
from fdml.protocol.wire_pb2 import PartyStatus


def status(
    run: Annotated[Path, typer.Argument(help="The run.toml of the run.")],
    plain: Annotated[bool, typer.Option("--plain", help="The run has no TLS.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """Show who is at which step, who waits for whom and since when."""
    check_writable(json)
    found = runs.status(run, plain=plain)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("party", "state", "step", "waits for", "waited", "sent", "received", "starts"):
        table.add_column(heading, justify="left" if heading in ("party", "state", "waits for") else "right")
    for party in found.parties:
        table.add_row(
            party.name,
            _state(party),
            f"{party.served + 1}/{found.steps}",
            ", ".join(party.waits_for) + (f" for {party.waiting_seconds:.1f} s" if party.waits_for else ""),
            f"{party.waited_seconds:.1f} s",
            f"{party.bytes_in / 1e6:.1f} MB",
            f"{party.bytes_out / 1e6:.1f} MB",
            str(party.incarnation),
        )
    echo(f"run {found.run}")
    stdout.print(table)
    if found.history:
        last = found.history[-1]
        told = (last.test_loss, last.test_metric) if last.HasField("test_loss") else (None, None)
        echo(f"epoch {last.epoch}: {figures(*told)}")
    if found.refused:
        echo("refused: " + ", ".join(f"{count} {reason}" for reason, count in sorted(found.refused.items())))
    write_json(json, MessageToDict(found, preserving_proto_field_name=True))


def _state(party: PartyStatus) -> str:
    if party.finished:
        return "finished"
    if party.aligning:
        return "aligned" if party.aligned and not party.waits_for else "aligning"
    if not party.connected:
        if party.incarnation:
            return "away"
        return "aligned, not joined yet" if party.aligned else "not here yet"
    return "waiting" if party.waits_for else "training"
