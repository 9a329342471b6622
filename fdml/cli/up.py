"""fdml up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import (
    LogFormatOption,
    LogLevelOption,
    LogOption,
    PlainOption,
    QuietOption,
    ServerOption,
    VerboseOption,
    WebListenOption,
    WebOption,
)
from fdml.cli.output import check_writable, resumable
from fdml.cli.run_output import Said, run_output
from fdml.cli.web import web_address, web_page
from fdml.federation import up as parties
from fdml.party.settings import read_party


def up(
    party: Annotated[Path, typer.Argument(help="This party's party.toml.")],
    plain: PlainOption = False,
    server: ServerOption = None,
    log: LogOption = None,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    web: WebOption = False,
    web_listen: WebListenOption = None,
) -> None:
    """Stand by as a party: take part in the runs that [policy] of party.toml allows, and keep others waiting.

    It opens connections outward only, unless it hosts the server or there is none. Every run is a process of its own
    (`fdml join`), started again if it dies.
    Nobody is asked whether other parties may learn which rows are shared: align.max_rows of party.toml says it.
    `fdml runs approve | refuse` decide on runs that wait; every decision is in decisions/log.jsonl, chained and signed.
    After Ctrl-C, a crash or `kill -9` the same command goes on with all runs.
    """
    check_writable(log)
    said, page_at = Said(log_format, log_level, quiet, verbose), web_address(web, web_listen)
    line = [*(["--plain"] if plain else []), *(["--server", server] if server else [])]
    with (
        resumable(f"fdml up {party}"),
        run_output(said, live=False, log=log) as listener,
        web_page(page_at, party, read_party(party).party, listener, options=line) as page,
    ):
        if page is not None:
            page.start()
        parties.up(party, plain=plain, server=server, on_event=listener)
