"""fdml audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fdml.audit.load_recording import read_recording
from fdml.audit.result import AttackResult, Outcome
from fdml.cli.options import JsonOption
from fdml.cli.output import check_writable, echo, stderr, stdout, write_json
from fdml.extras import need

_STYLES: dict[Outcome, str] = {"PASS": "green", "FAIL": "bold red", "NOT APPLICABLE": "dim"}


def audit(
    run: Annotated[Path, typer.Argument(help="The run.toml of a finished run; all parties' folders are beside it.")],
    only: Annotated[str | None, typer.Option(help="Attacks to try, such as A4,A5; all if left out.")] = None,
    json: JsonOption = None,
) -> None:
    """Attack a finished run as a curious server, party or user could.

    It needs everything in one place, as `fdml simulate` leaves it: the server's log, which holds what was seen, and
    the parties' data, with which the findings are compared. Every attack has a limit, and passes, fails or does not
    apply.

    Exit code 0 if nothing fails, 1 if something does.
    """
    check_writable(json)
    need("sklearn", "`fdml audit`")
    from fdml.audit.attacks import chosen, results  # noqa: PLC0415 (an extra)

    names = chosen(only)
    recording = read_recording(run)
    found: list[AttackResult] = []
    for name in names:
        with stderr.status(f"attack {name}"):
            found += results(recording, [name])
    stdout.print(_table(found))
    for result in found:
        echo(f"{result.test}, {result.view}: {result.title}; {result.reason}")
    counts = Counter(result.outcome for result in found)
    echo(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['NOT APPLICABLE']} do not apply")
    write_json(json, {"run": str(run), "counts": dict(counts), "results": [_as_dict(result) for result in found]})
    if counts["FAIL"]:
        raise typer.Exit(1)


def _table(found: Sequence[AttackResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("test")
    table.add_column("view")
    for heading in ("score", "baseline", "gain"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bar")
    table.add_column("outcome", no_wrap=True)
    for result in found:
        figures = (_figure(result.score), _figure(result.baseline), _figure(result.gain, "+"))
        style = _STYLES[result.outcome]
        table.add_row(result.test, result.view, *figures, result.bar, f"[{style}]{result.outcome}[/]")
    return table


def _figure(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.3f}"


def _as_dict(result: AttackResult) -> dict[str, Any]:
    return {**asdict(result), "details": dict(result.details)}
