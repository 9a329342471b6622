"""Options that several commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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
RunNameOption = Annotated[str | None, typer.Option("--name", help="A name in place of the one in run.toml: '2026-11'.")]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        help='Train on from this version, or from that of a run that has finished here, or "promoted"; in place of '
        "`from` in run.toml.",
    ),
]
PortFileOption = Annotated[
    Path | None, typer.Option(help="Write the port to this file once the server listens; where this side runs it.")
]
JsonOption = Annotated[Path | None, typer.Option(help="Write the figures to this file.")]
LogOption = Annotated[Path | None, typer.Option(help="Append every event to this file, one JSON object per line.")]
LogFormatOption = Annotated[
    Literal["text", "json"],
    typer.Option("--log-format", help="What is said meanwhile: text, or one JSON object a line."),
]
LogLevelOption = Annotated[
    Literal["debug", "info", "warning"],
    typer.Option("--log-level", help="How much is said: warning is what goes wrong; debug in JSON has every step."),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Say only what goes wrong; figures still go to standard output.")
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say more: every epoch and every wait in a line of its own.")
]
PAGE = "127.0.0.1:7480"
"""Where the live page is, if nothing else is said."""
WebOption = Annotated[
    bool, typer.Option("--web", help=f"Show the live page and /metrics beside it, at http://{PAGE}/; see `fdml watch`.")
]
WebListenOption = Annotated[
    str | None,
    typer.Option(
        "--web-listen", help="The same at this address of loopback; port 0 takes a free one.", metavar="HOST:PORT"
    ),
]
ReportToOption = Annotated[
    Path | None,
    typer.Option("--report-to", hidden=True, help="Where the process that has started this one reads how far it is."),
]
PlotOption = Annotated[Path | None, typer.Option(help="Draw the paper's four plots to this PNG file.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="Number of seeds to take the mean of.")]
PartyOption = Annotated[Path, typer.Option(help="This party's party.toml.")]
ModelRunOption = Annotated[
    str | None,
    typer.Option("--run", help="The name of the run whose model is meant; else the promoted or the newest one."),
]
VersionOption = Annotated[
    str | None, typer.Option(help="The version of the model, or the first characters of it; `fdml model list` has all.")
]
DeadlineOption = Annotated[
    float | None,
    typer.Option(
        min=0.1, help="Seconds to wait for the answers to a block; else serving.deadline_seconds of run.toml."
    ),
]
