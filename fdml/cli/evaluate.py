"""fdml evaluate."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import DeadlineOption, JsonOption, ModelRunOption, PlainOption, ServerOption, VersionOption
from fdml.cli.output import check_writable, echo, stderr, write_json
from fdml.federation.predicting import asking, rows_to_evaluate
from fdml.federation.run_folder import MODEL, RUNS
from fdml.models.bundle import Bundle
from fdml.monitor.figures import figures_line
from fdml.monitor.terminal import RunTerminal
from fdml.serving.evaluating import evaluate as evaluate_rows


def evaluate(
    party: Annotated[Path, typer.Argument(help="The label party's party.toml.")],
    rows: Annotated[
        Path | None, typer.Option(help="A CSV or Parquet file with ids and labels; else the run's held-out rows.")
    ] = None,
    run: ModelRunOption = None,
    version: VersionOption = None,
    deadline: DeadlineOption = None,
    plain: PlainOption = False,
    server: ServerOption = None,
    json: JsonOption = None,
) -> None:
    """Ask for the scores of labelled rows, and say how good they are: loss, all metrics, gain over the party alone.

    The gain is that of the run's held-out rows, which the run itself found.
    """
    check_writable(json)
    with asking(
        party, run=run, version=version, plain=plain, server=server, seconds=deadline, on_event=RunTerminal(stderr)
    ) as asker:
        facts = asker.own.facts
        found = evaluate_rows(asker, rows_to_evaluate(party, asker, rows))
    echo(f"run {facts.run.name!r}, version {facts.version[:12]}: {found.scored:,} of {found.rows:,} rows have a score")
    if found.complete < found.scored:
        echo(f"{found.scored - found.complete:,} of these without the part of some party")
    for why in found.why:
        echo(f"- {why}")
    echo(f"loss {found.loss:.4f}, {figures_line(found.figures)}")
    card = Bundle.load(party.parent / RUNS / facts.run.name / MODEL).card
    compared = card.compared if rows is None else None
    if compared is not None:
        echo(compared.text)
    gain = None if compared is None else asdict(compared)
    write_json(json, {"run": facts.run.name, "version": facts.version, **asdict(found), "compared": gain})
