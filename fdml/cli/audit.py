"""fdml audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fdml.audit.attacks import chosen, results
from fdml.audit.load_recording import read_recording
from fdml.audit.result import AttackResult, Outcome
from fdml.cli.output import check_writable, echo, stderr, stdout, write_json

_STYLES: dict[Outcome, str] = {"PASS": "green", "FAIL": "bold red", "NOT APPLICABLE": "dim"}


def audit(
    run: Annotated[Path, typer.Argument(help="The run.toml of a finished run; all parties' folders are beside it.")],
    only: Annotated[str | None, typer.Option(help="Attacks to try, such as A4,A5; else all.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """Attack a finished run as server, parties or users could who keep all that they see.

    It needs everything in one place, as `fdml simulate` leaves it: the server's log for what was seen, and the
    parties' data to judge by how much of it was found out. Every attack has a bar and passes, fails or does not apply.

    Exit code 0 if nothing fails, 1 if something does.
    """
    check_writable(json)
    names = chosen(only)
    recording = read_recording(run)
    found: list[AttackResult] = []
    for name in names:
        with stderr.status(f"attack {name}"):
            found += results(recording, [name])
    stdout.print(_table(found))
    for verdict in found:
        echo(f"{verdict.test}, {verdict.view}: {verdict.title}; {verdict.reason}")
    counts = Counter(verdict.outcome for verdict in found)
    echo(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['NOT APPLICABLE']} do not apply")
    write_json(json, {"run": str(run), "counts": dict(counts), "results": [_plain(verdict) for verdict in found]})
    if counts["FAIL"]:
        raise typer.Exit(1)


def _table(found: Sequence[AttackResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("test")
    table.add_column("view")
    for heading in ("score", "baseline", "gain"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bar")
    table.add_column("verdict", no_wrap=True)
    for verdict in found:
        figures = (_figure(verdict.score), _figure(verdict.baseline), _figure(verdict.gain, "+"))
        style = _STYLES[verdict.outcome]
        table.add_row(verdict.test, verdict.view, *figures, verdict.bar, f"[{style}]{verdict.outcome}[/]")
    return table


def _figure(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.3f}"


def _plain(verdict: AttackResult) -> dict[str, Any]:
    return {**asdict(verdict), "details": dict(verdict.details)}
