"""fdml report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.output import check_writable, echo
from fdml.federation.run_record import newest_run
from fdml.federation.run_report import write_report
from fdml.monitor.pdf import find_browser, write_pdf
from fdml.party.settings import read_party


def report(
    party: Annotated[Path, typer.Argument(help="This party's party.toml.")],
    run: Annotated[str | None, typer.Option(help="The name of the run; else the one that was begun last.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the page here; else to report.html of the run.")] = None,
    pdf: Annotated[Path | None, typer.Option(help="Print it to this PDF file, through Chromium or Chrome.")] = None,
) -> None:
    """Write the page of a run again: what joint training brought, curves, lag, privacy, settings, how to repeat it.

    Every run ends with it. It is one file that opens from disk, made of this party's own files; a run that goes on has
    one, too.
    """
    check_writable(out, pdf)
    if pdf is not None:
        find_browser()
    own = read_party(party)
    path = write_report(party.parent, own.party, run or newest_run(party.parent), out)
    echo(f"report: {path}")
    if pdf is not None:
        write_pdf(path, pdf)
        echo(f"printed: {pdf}")
