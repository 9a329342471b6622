"""The command line of the benchmarks: `python -m benchmarks NAME`."""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from benchmarks.measure import Report
from benchmarks.registry import BENCHMARKS, run_benchmark
from fdml.cli.output import check_plot, check_writable, echo, stderr, stdout, write_json
from fdml.errors import FdmlError, SettingsError


def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(BENCHMARKS)}.")],
    old: Annotated[Path | None, typer.Argument(help="A checkout to compare this one with (against).")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="How many runs with faults (kill, protocol), or of each (neighbours, noise, regret)."),
    ] = None,
    first: Annotated[int | None, typer.Option(min=0, help="The first seed of random faults.")] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1000,
            help="How many rows (against, align-large, app-store, blocks, default-times, growth, network, speed).",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Only what has this in its name (against, defaults, models, trees, vectors), added to what --json has "
            "by now; several between semicolons (models); tokens or ecdh (align-large); LR or NN (default-times)."
        ),
    ] = None,
    gigabytes: Annotated[float | None, typer.Option(min=0.001, help="How much is written to read it (reader).")] = None,
    workers: Annotated[
        int | None, typer.Option(min=2, help="Read by so many processes as well, beside one process (reader).")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="How many rounds (against, blind, default-times, load).")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the figures to this PNG file (app-store, noise, regret).")
    ] = None,
) -> None:
    """Measure fdml beside its peers; every figure comes with its spread, the machine and the commit."""
    check_writable(json)
    check_plot(plot)
    options: dict[str, float | str | Path | None] = {
        "old": old, "seeds": seeds, "first": first, "rows": rows, "only": only, "gigabytes": gigabytes,
        "rounds": rounds, "plot": plot, "workers": workers,
    }  # fmt: skip
    report = run_benchmark(name, lambda line: stderr.print(line, highlight=False), **options)
    echo(report.question)
    stdout.print(_results(report))
    if report.ratios:
        stdout.print(_ratios(report))
    echo(f"commit {report.commit}; " + ", ".join(f"{key} {value}" for key, value in report.machine.items()))
    before = _earlier(json) if only else None
    write_json(json, report.as_json() if before is None else report.merged(before))


def _earlier(path: Path | None) -> dict[str, Any] | None:
    """What a file has by now: the figures of a part of a benchmark are added to those of its other parts."""
    if path is None or not path.exists():
        return None
    try:
        found: dict[str, Any] = loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise SettingsError(f"{str(path)!r} has no figures to add to; name another file") from None
    return found


def _results(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("contender", "median", "min", "max", "unit"):
        table.add_column(heading, justify="left" if heading in ("contender", "unit") else "right")
    for row in report.results:
        figures = (f"{row[key]:,.4g}" if row[key] < 10 else f"{row[key]:,.1f}" for key in ("median", "min", "max"))
        table.add_row(row["contender"], *figures, row["unit"])
    return table


def _ratios(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("ratio or gain", "median", "min", "max"):
        table.add_column(heading, justify="left" if heading == "ratio or gain" else "right")
    for name, spread in report.as_json()["ratios"].items():
        digits = 2 if max(abs(spread["min"]), abs(spread["max"])) >= 0.1 else 4
        table.add_row(name, *(f"{spread[key]:.{digits}f}" for key in ("median", "min", "max")))
    return table


def main() -> None:
    """Run one benchmark by its name."""
    try:
        typer.run(bench)
    except FdmlError as error:
        stderr.print(f"benchmarks: {error}", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
