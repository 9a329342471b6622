"""fdml watch."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import PAGE, ServerOption
from fdml.cli.output import echo, resumable
from fdml.cli.web import page_address
from fdml.errors import SettingsError
from fdml.federation import watch as pages
from fdml.federation.page_process import WITH_PARENT
from fdml.monitor.page_server import LOOPBACK, PageServer

_NICENESS = 10
"""A page beside a run gets the processor time that the run leaves."""


def watch(
    path: Annotated[
        Path, typer.Argument(help="A party's party.toml; or the federation.toml, with the server's folder beside it.")
    ],
    run: Annotated[str | None, typer.Option(help="The name of the run; else the one that is under way.")] = None,
    listen: Annotated[str, typer.Option(help="Where the page is served; port 0 takes a free one.")] = PAGE,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token that every viewer needs; else a new one is made.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="The run has no TLS.")] = False,
    server: ServerOption = None,
    with_parent: Annotated[bool, typer.Option(WITH_PARENT, hidden=True, help="End when standard input does.")] = False,
) -> None:
    """Show a run on a page while it goes on, and after it: who is where, who waits for whom, curves, privacy.

    It asks the server once a second, as `fdml status` does, and reads this party's own files; the run does no work for
    it. The page is for this machine; elsewhere than on loopback every viewer needs a token. Metrics for Prometheus are
    at /metrics. Ctrl-C ends the page, not the run.
    """
    host, port = page_address(listen, "--listen")
    ended = _parent_end() if with_parent else None
    token = None if token_file is None else _token(token_file)
    with resumable(f"fdml watch {path}"):
        pages.watch(
            pages.Watch(path, run, plain=plain, server=server),
            host,
            port,
            token=token,
            on_start=_print_address,
            stop=ended,
        )


def _parent_end() -> threading.Event:
    """Is set once standard input ends: whoever has started this process has ended, in order or not."""
    os.nice(_NICENESS)
    ended = threading.Event()

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):  # the stream itself has a lock, on which the process's end would fail
            pass
        ended.set()

    threading.Thread(target=wait, name="parent", daemon=True).start()
    return ended


def _print_address(server: PageServer) -> None:
    echo(f"page: {server.address}")
    if server.host not in LOOPBACK:
        echo("the token is in the address; the line is not encrypted: put a proxy with TLS before it, or use ssh -L")


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"cannot read the token in {str(path)!r} ({error.strerror})") from None
    if len(token) < 16 or not token.isascii() or not token.replace("-", "").replace("_", "").isalnum():
        raise SettingsError(f"the token in {str(path)!r} must have 16 or more letters, digits, - and _")
    return token
