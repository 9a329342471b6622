"""fdml forget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import JsonOption
from fdml.cli.output import check_writable, echo, write_json
from fdml.federation.forget import end_of_life


def forget(
    run: Annotated[Path, typer.Argument(help="A party.toml for a party's side, or a run.toml for the server's side.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Give up a run that has not finished.")] = False,
    json: JsonOption = None,
) -> None:
    """Remove secrets, tokens and logs of a finished run at this side. Bundle, statement and ledger stay.

    Afterwards nobody can take masks off, look for ids or replay what this side stored. Run it at every side.
    """
    check_writable(json)
    found = end_of_life(run)
    echo(
        f"{found.side}: these go from {found.folder}:" if found.removes else f"{found.side}: nothing is left to remove"
    )
    for line in found.removes:
        echo(f"- {line}")
    if found.removes and not yes:
        typer.confirm("Remove them for good?", abort=True)
    found.carry_out(unfinished=unfinished or not found.removes)
    echo("removed; what stays:" if found.removes else "what stays:")
    for line in found.stays:
        echo(f"- {line}")
    write_json(json, {"side": found.side, "removed": list(found.removes), "stays": list(found.stays)})
