"""fdml simulate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.output import check_writable, echo, resumable, stderr, write_json
from fdml.federation.processes import run_processes


def simulate(
    run: Annotated[Path, typer.Argument(help="A run.toml with the parties' folders beside it.")],
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget saved state and start over.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No TLS, no certificates; on loopback only.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """Run the server and all parties on this machine, each as a process of its own.

    After Ctrl-C or a crash the same command goes on where the run stopped.
    """
    check_writable(json)
    with resumable(f"fdml simulate {run}"):
        found = run_processes(run, fresh=fresh, plain=plain, say=_forward)
    echo("epoch  seconds  train loss  test loss  test metric")
    for row in found["history"]:
        told = [row[name] for name in ("train_loss", "test_loss", "test_metric")]
        cells = [f"{'private' if each is None else format(each, '.4f'):>10}" for each in told]
        echo(f"{row['epoch']:5d}  {row['seconds']:7.2f}  {'  '.join(cells)}")
    final = found["history"][-1] if found["history"] else {}
    write_json(json, {**found, "metrics": final})


def _forward(line: str) -> None:
    stderr.print(line, highlight=False, markup=False, soft_wrap=True)
