"""fdml new."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.output import echo
from fdml.federation.scaffold import scaffold


def new(
    folder: Annotated[Path, typer.Argument(help="A folder that does not hold a federation yet.")],
    parties: Annotated[str, typer.Option(help="Names of the parties, the label party first: 'store,browser'.")],
    server: Annotated[str, typer.Option(help="Where the server will listen.")] = "127.0.0.1:7443",
) -> None:
    """Write a federation and a first run that work as they are, to try out on one machine.

    That is federation.toml, run.toml, and a folder with keys and example data per party.

    It makes the keys of all sides in one place. Between companies each makes its own: `fdml keys request`.
    """
    names = [name.strip() for name in parties.split(",") if name.strip()]
    scaffold(folder, names, server)
    echo(f"wrote {folder}: start the server and each party, every one in a terminal of its own:")
    echo(f"  fdml serve {folder / 'federation.toml'} --run {folder / 'run.toml'}")
    for name in names:
        echo(f"  fdml join {folder / name / 'party.toml'}")
    echo(f"or all on this machine at once:\n  fdml simulate {folder / 'run.toml'}")
    echo("or let them stand by for many runs, which any party then starts for all:")
    echo(f"  fdml serve {folder / 'federation.toml'}")
    for name in names:
        echo(f"  fdml up {folder / name / 'party.toml'}")
    echo(f"  fdml run {folder / 'run.toml'} --party {folder / names[0] / 'party.toml'}")
    echo(
        "All keys were made here, in one place: this is for trying out on one machine. Between companies each side "
        "makes its own with `fdml keys request` (docs/two-companies.md)."
    )
