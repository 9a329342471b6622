"""fdml serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import (
    LogFormatOption,
    LogLevelOption,
    LogOption,
    PlainOption,
    PortFileOption,
    QuietOption,
    ReportToOption,
    VerboseOption,
    WebListenOption,
    WebOption,
)
from fdml.cli.output import check_writable, command, echo, resumable, run_name, stderr, write_json
from fdml.cli.run_output import Said, run_output
from fdml.cli.web import web_address, web_page
from fdml.federation import serve as runs
from fdml.federation.machine_limits import tune_server_process
from fdml.federation.page_process import reached_here
from fdml.federation.server_sessions import alignment_figures
from fdml.monitor.terminal import print_line
from fdml.protocol.certificates import SERVER


def serve(
    federation: Annotated[Path, typer.Argument(help="The federation.toml that all parties agreed on.")],
    run: Annotated[Path | None, typer.Option(help="Serve the run of this run.toml alone, and end with it.")] = None,
    plain: PlainOption = False,
    listen: Annotated[
        str | None,
        typer.Option(help="Listen here, if not where the parties reach the server: '0.0.0.0:7443'; port 0 is any."),
    ] = None,
    port_file: PortFileOption = None,
    log: LogOption = None,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    report_to: ReportToOption = None,
    web: WebOption = False,
    web_listen: WebListenOption = None,
    json: Annotated[
        Path | None, typer.Option(help="With --run: write the alignment and the evaluated epochs to this file.")
    ] = None,
) -> None:
    """Run the server: it sums predictions and lets nobody run too far ahead.

    With --run it serves that run and ends with it. Without, it stays up and hosts all runs that parties start, one
    after the other or at once. After a crash the same command goes on where the server stopped.
    """
    check_writable(port_file, log, json)
    said, page_at = Said(log_format, log_level, quiet, verbose), web_address(web, web_listen)
    tune_server_process()
    name = "" if run is None else run_name(run, federation)
    with (
        resumable(command("serve", federation, run)),
        run_output(said, run=name, log=log, report_to=report_to) as listener,
        web_page(page_at, federation, SERVER, listener, run=name, options=["--plain"] if plain else []) as page,
    ):

        def open_page(address: str) -> None:
            if page is not None:
                page.start("--server", reached_here(address))

        if run is None:
            runs.serve_federation(
                federation, plain=plain, listen=listen, port_file=port_file, on_event=listener, on_listen=open_page
            )
            return
        result = runs.serve(
            federation, run, plain=plain, listen=listen, port_file=port_file, on_event=listener, on_listen=open_page
        )
    state, rows = result.state, result.alignment
    if state.history:
        echo(
            f"all parties have finished: {len(state.history)} epochs were evaluated; their figures are for the parties"
        )
    for party, (received, sent) in () if quiet else result.traffic.items():
        print_line(stderr, f"{party}: {received / 1e6:.1f} MB received, {sent / 1e6:.1f} MB sent")
    write_json(json, {"alignment": alignment_figures(state, rows), "evaluated": sorted(state.history)})
