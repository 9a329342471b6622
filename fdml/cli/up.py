"""fdml up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import LogOption, PlainOption, ServerOption
from fdml.cli.output import check_writable, logged, resumable, stderr
from fdml.federation import up as parties
from fdml.monitor.terminal import RunTerminal


def up(
    party: Annotated[Path, typer.Argument(help="This party's party.toml.")],
    plain: PlainOption = False,
    server: ServerOption = None,
    log: LogOption = None,
) -> None:
    """Stand by as a party: take part in the runs that [policy] of party.toml allows, and keep others waiting.

    It opens connections outward only. Every run is a process of its own (`fdml join`), started again if it dies.
    `fdml runs approve | refuse` decide on runs that wait; every decision is in decisions/log.jsonl, chained and signed.
    After Ctrl-C, a crash or `kill -9` the same command goes on with all runs.
    """
    check_writable(log)
    with resumable(f"fdml up {party}"), logged(RunTerminal(stderr), log) as listener:
        parties.up(party, plain=plain, server=server, on_event=listener)
