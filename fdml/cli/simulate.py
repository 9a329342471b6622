"""fdml simulate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import JsonOption, PlainOption, QuietOption, VerboseOption
from fdml.cli.output import check_writable, echo, resumable, stderr, write_json
from fdml.cli.run_output import Said
from fdml.federation.processes import run_processes
from fdml.monitor.figures import CHOSEN, TITLES, figures_line
from fdml.monitor.history import metric_of
from fdml.monitor.run_displays import processes_terminal
from fdml.settings.federation import read_run


def simulate(
    run: Annotated[Path, typer.Argument(help="A run.toml, with federation.toml and the parties' folders beside it.")],
    plain: PlainOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    json: JsonOption = None,
) -> None:
    """Run the server and all parties on this machine, each as a process of its own.

    After Ctrl-C or a crash the same command goes on where the run stopped; a new name in run.toml begins another run.
    """
    check_writable(json)
    said = Said(quiet=quiet, verbose=verbose)
    with resumable(f"fdml simulate {run}"), processes_terminal(stderr, quiet=said.quiet) as (listener, is_live):
        found = run_processes(run, plain=plain, on_event=listener, tells=is_live, options=_options(said))
    rows = found["history"]
    settings = read_run(run)
    metric = metric_of(settings.task, settings.loss)
    echo(f"epoch  seconds  train loss  test loss  test {TITLES[metric]}")
    for row in rows:
        echo(_row_text(row))
    chosen = [row for row in rows if row["chosen"]]
    final = (chosen or rows or [{}])[-1]
    if final:
        echo(f"held-out rows, model of epoch {final['epoch']}: {figures_line(final['figures'])}")
    if chosen:
        echo(CHOSEN)
    if final and final["compared"]:
        echo(final["compared"]["text"])
    write_json(json, {**found, "metrics": final})


def _row_text(row: Mapping[str, float | None]) -> str:
    figures = [row[name] for name in ("train_loss", "test_loss", "test_metric")]
    cells = [f"{'-' if figure is None else format(figure, '.4f'):>10}" for figure in figures]
    return f"{row['epoch']:5d}  {row['seconds']:7.2f}  {'  '.join(cells)}"


def _options(said: Said) -> list[str]:
    """What every process is told of how much it says."""
    return [*(["--quiet"] if said.quiet else []), *(["--verbose"] if said.verbose else [])]
