"""fdml forget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import JsonOption
from fdml.cli.output import check_writable, echo, write_json
from fdml.errors import SettingsError
from fdml.federation.forget import end_of_alignments, end_of_life, side_of
from fdml.federation.run_folder import run_names


def forget(
    path: Annotated[
        Path, typer.Argument(help="A party.toml for a party's side, or a federation.toml for the server's side.")
    ],
    run: Annotated[str | None, typer.Option(help="The name of the run.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All runs that have begun here.")] = False,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="The kept alignments and their keys; the next run aligns anew.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Give up a run that has not finished.")] = False,
    json: JsonOption = None,
) -> None:
    """Remove what a finished run (--run) or the kept alignments (--alignments) left at this side.

    --run NAME removes the run's state: noise key, stored releases, checkpoints and features at a party, the log with
    predictions at the server. Bundle, statement and ledger stay, and so does the alignment, for further runs: at a
    party the group key and the shared rows, at the server tokens or blinded points of ids. What predictions are
    answered from stays with its own keys until `fdml model forget`.

    --alignments removes those, alone or together with --run or --all; the next run aligns anew, with a new group key.
    With both at every side nothing is left to find ids, remove masks or replay a run with.
    """
    check_writable(json)
    names = run_names(side_of(path)) if every else [run] if run is not None else []
    if (not names and not alignments) or (every and run is not None):
        known = ", ".join(run_names(side_of(path))) or "none"
        raise SettingsError(
            f"say which run with --run NAME, or --all, or --alignments; the runs that have begun here: {known}"
        )
    ended = [end_of_life(path, name) for name in names]
    for found in ended:
        where = f"{found.side}: these go from {found.run.state}:"
        echo(where if found.removes else f"{found.side}: nothing is left to remove in {found.run.state}")
        for line in found.removes:
            echo(f"- {line}")
    kept = end_of_alignments(path) if alignments else None
    if kept is not None:
        echo(f"these go from {kept.home}:" if kept.removes else f"no alignment is kept in {kept.home}")
        for line in kept.removes:
            echo(f"- {line}")
    removes = any(found.removes for found in ended) or (kept is not None and bool(kept.removes))
    if removes and not yes:
        typer.confirm("Remove them for good?", abort=True)
    for found in ended:
        found.carry_out(unfinished=unfinished or not found.removes)
    if kept is not None:
        end_of_alignments(path).carry_out(unfinished=unfinished)
    stays = [line for line in (ended[0].stays if ended else ()) if kept is None or "--alignments" not in line]
    echo("removed; what stays:" if removes and stays else "removed" if removes else "what stays:")
    for line in stays:
        echo(f"- {line}")
    runs = {name: list(found.removes) for name, found in zip(names, ended, strict=True)}
    gone = list(kept.removes) if kept is not None else []
    side = {"side": ended[0].side} if ended else {}
    write_json(json, {**side, "removed": runs, "removed_alignments": gone, "stays": stays})
