"""Options that several commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PlainOption = Annotated[bool, typer.Option("--plain", help="No TLS, no certificates; on loopback only.")]
ServerOption = Annotated[
    str | None, typer.Option(help="Where the server is, if not where party.toml or federation.toml says: 'host:7443'.")
]
WaitOption = Annotated[
    float | None,
    typer.Option(
        min=1.0, help="Give up once the server or a party was missing for so many seconds before the first step."
    ),
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Consent, within party.toml's [align], to all parties being told the shared rows.")
]
RunOption = Annotated[
    Path | None, typer.Option(help="The run.toml that all parties agreed on; else the one beside federation.toml.")
]
JsonOption = Annotated[Path | None, typer.Option(help="Write the figures to this file.")]
LogOption = Annotated[Path | None, typer.Option(help="Append every event to this file, one JSON object per line.")]
PlotOption = Annotated[Path | None, typer.Option(help="Draw the paper's four plots to this PNG file.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="Number of seeds to take the mean of.")]
PartyOption = Annotated[Path, typer.Option(help="This party's party.toml.")]
