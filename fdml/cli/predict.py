"""fdml predict."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import DeadlineOption, JsonOption, ModelRunOption, PlainOption, ServerOption, VersionOption
from fdml.cli.output import check_writable, echo, resumable, stderr, write_json
from fdml.federation.asked_files import asked_file
from fdml.federation.live_features import live_file
from fdml.federation.predicting import asking
from fdml.monitor.terminal import RunTerminal, print_line
from fdml.party.settings import read_party
from fdml.serving.batch import BatchResult, Retry, ending_of, predict_batch, with_live


def predict(
    party: Annotated[Path, typer.Argument(help="This party's party.toml.")],
    ids: Annotated[Path, typer.Option(help="A CSV or Parquet file with the ids, in the columns of data.id.")],
    out: Annotated[Path, typer.Option(help="Where the answers go: a .csv or .parquet file.")],
    features: Annotated[
        Path | None,
        typer.Option(
            help="A CSV or Parquet file with ids and this party's own features: they take the place of its stored rows."
        ),
    ] = None,
    run: ModelRunOption = None,
    version: VersionOption = None,
    deadline: DeadlineOption = None,
    retry: Annotated[
        float, typer.Option(min=0, help="Seconds to ask for a block again while a party or the server is away.")
    ] = 0.0,
    plain: PlainOption = False,
    server: ServerOption = None,
    json: JsonOption = None,
) -> None:
    """Ask all parties for the joint scores of a file of ids; they stand by with `fdml up`.

    Every id gets a row: score, probability, prediction, which parties answered, which are missing and why. Ids travel
    as tokens that only the parties can make. It asks block by block; after a crash the same command asks for the
    blocks that are not there yet.
    """
    check_writable(out, json)
    ending_of(out)
    settings = read_party(party)
    with (
        resumable(f"fdml predict {party} --ids {ids} --out {out}"),
        asking(
            party,
            run=run,
            version=version,
            plain=plain,
            server=server,
            seconds=deadline,
            on_event=RunTerminal(stderr),
        ) as asker,
    ):
        facts = asker.own.facts
        table = asked_file(ids, settings, facts.run).table
        if features is not None:
            table = with_live(table, *live_file(features, settings, party.parent, facts))
        result = predict_batch(asker, table, out, retry=Retry(retry), progress=_progress)
    for line in _lines(result, out, facts.run.name, facts.version):
        echo(line)
    write_json(json, {"run": facts.run.name, "version": facts.version, **asdict(result)})


def _progress(done: int, rows: int) -> None:
    if rows > done:
        print_line(stderr, f"{done:,} of {rows:,} rows")


def _lines(result: BatchResult, out: Path, run: str, version: str) -> list[str]:
    lines = [f"{result.scored:,} of {result.rows:,} rows have a score of run {run!r}, version {version[:12]}: {out}"]
    if result.asked is not None:
        lines.append(f"the others were asked for {result.asked:,} rows; of the rest this party was sure alone")
    if result.resumed:
        lines.append(f"{result.resumed} of {result.blocks} blocks were there from an earlier start")
    lines += [f"without {name}: {count:,} rows" for name, count in result.missing.items() if count]
    return [*lines, *(f"- {why}" for why in result.why)]
