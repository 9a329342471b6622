"""fdml join."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.figures import bundle_figures
from fdml.cli.options import (
    FromOption,
    JsonOption,
    LogFormatOption,
    LogLevelOption,
    LogOption,
    PlainOption,
    PortFileOption,
    QuietOption,
    ReportToOption,
    RunNameOption,
    RunOption,
    ServerOption,
    VerboseOption,
    WaitOption,
    WebListenOption,
    WebOption,
    YesOption,
)
from fdml.cli.output import check_writable, command, echo, person, resumable, run_name, write_json
from fdml.cli.run_output import Said, run_output
from fdml.cli.web import web_address, web_page
from fdml.federation import join as parties
from fdml.federation.machine_limits import tune_party_process
from fdml.federation.run_report import REPORT
from fdml.party.settings import read_party


def join(
    party: Annotated[Path, typer.Argument(help="This party's party.toml.")],
    run: RunOption = None,
    name: RunNameOption = None,
    begin_with: FromOption = None,
    plain: PlainOption = False,
    server: ServerOption = None,
    wait: WaitOption = None,
    yes: YesOption = False,
    port_file: PortFileOption = None,
    log: LogOption = None,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    report_to: ReportToOption = None,
    web: WebOption = False,
    web_listen: WebListenOption = None,
    json: JsonOption = None,
) -> None:
    """Train one party's model together with the others, and save it in runs/NAME of the party's folder.

    It waits for the server and the other parties as long as it takes, and says every 10 seconds for whom and why;
    --wait bounds that. A new name in run.toml begins a run, the same name goes on with it: after a crash the same
    command goes on from the last saved state, and ends with the same model. --from trains on from an earlier version;
    a server that stands by takes such a run from the parties, and all of them need the same --name and --from.
    The party that federation.toml names as `host` runs the server as well, and ends once all have finished.
    """
    check_writable(port_file, log, json)
    said, page_at = Said(log_format, log_level, quiet, verbose), web_address(web, web_listen)
    tune_party_process()
    settings = read_party(party)
    called = name or run_name(run, settings.federation)
    options = {"--name": name, "--from": begin_with}
    line_options = [*(["--plain"] if plain else []), *(["--server", server] if server else [])]
    typed = "".join(f" {option} {value}" for option, value in options.items() if value is not None)
    with (
        resumable(command("join", party, run) + typed),
        run_output(said, party=settings.party, run=called, log=log, report_to=report_to) as listener,
        web_page(page_at, party, settings.party, listener, run=called, options=line_options) as page,
    ):
        if page is not None:
            page.start()
        result = parties.join(
            party,
            run,
            name=name,
            begin_with=begin_with,
            plain=plain,
            server=server,
            wait=wait,
            yes=yes,
            ask=person(),
            on_event=listener,
            port_file=port_file,
        )
    echo(
        f"{settings.party}: trained {result.seconds:.1f} s, waited {result.waited:.1f} s for others in all; "
        f"model in {result.bundle} (hash {result.model_hash.hex()[:16]})"
    )
    lines, found = bundle_figures(result.bundle)
    for line in lines:
        echo(line)
    folder = party.parent if result.bundle is None else result.bundle.parent
    echo(f"what this run showed of this party: {folder / 'privacy.md'}")
    echo(f"the whole run on a page: {folder / REPORT}")
    figures = {
        "party": settings.party,
        "seconds": result.seconds,
        "waited_seconds": result.waited,
        "resumed_at": result.resumed_at,
        "model_path": str(result.bundle),
        "model_hash": result.model_hash.hex(),
        "convergence": result.convergence,
        "metrics": found,
    }
    write_json(json, figures)
