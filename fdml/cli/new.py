"""fdml new."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.output import echo
from fdml.federation.scaffold import scaffold


def new(
    folder: Annotated[Path, typer.Argument(help="A folder that does not hold a run yet.")],
    parties: Annotated[str, typer.Option(help="Names of the parties, the label party first: 'store,browser'.")],
    server: Annotated[str, typer.Option(help="Where the server will listen.")] = "127.0.0.1:7443",
) -> None:
    """Write a run that works as it is: run.toml, a folder per party, keys and certificates, example data."""
    names = [name.strip() for name in parties.split(",") if name.strip()]
    scaffold(folder, names, server)
    echo(f"wrote {folder}: start the server and each party, every one in a terminal of its own:")
    echo(f"  fdml serve {folder / 'run.toml'}")
    for name in names:
        echo(f"  fdml join {folder / name / 'party.toml'}")
    echo(f"or all on this machine at once:\n  fdml simulate {folder / 'run.toml'}")
    echo(
        f"{folder / 'authority'} can name new parties: keep it apart. Give each party its own folder and run.toml only."
    )
