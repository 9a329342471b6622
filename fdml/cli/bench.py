"""fdml bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fdml.bench.registry import run_benchmark
from fdml.cli.output import aside, check_writable, shown, write_json


def bench(
    name: Annotated[str, typer.Argument(help="kernels")],
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """Measure; every figure comes with its spread, the machine and the commit."""
    check_writable(json)
    report = run_benchmark(name, lambda line: aside.print(line, highlight=False))
    write_json(json, report.as_json())
