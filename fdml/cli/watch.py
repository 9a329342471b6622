"""fdml watch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import ServerOption
from fdml.cli.output import echo, resumable
from fdml.errors import SettingsError
from fdml.federation import watch as pages
from fdml.monitor.page_server import LOOPBACK, PageServer

_PORT = 7480


def watch(
    path: Annotated[
        Path, typer.Argument(help="A party's party.toml; or the federation.toml, with the server's folder beside it.")
    ],
    run: Annotated[str | None, typer.Option(help="The name of the run; else the one that is under way.")] = None,
    listen: Annotated[str, typer.Option(help="Where the page is served; port 0 takes a free one.")] = (
        f"127.0.0.1:{_PORT}"
    ),
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token that every viewer needs; else a new one is made.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="The run has no TLS.")] = False,
    server: ServerOption = None,
) -> None:
    """Show a run on a page while it goes on, and after it: who is where, who waits for whom, curves, privacy.

    It asks the server once a second, as `fdml status` does, and reads this party's own files; the run does no work for
    it. The page is for this machine; elsewhere than on loopback every viewer needs a token. Metrics for Prometheus are
    at /metrics. Ctrl-C ends the page, not the run.
    """
    host, port = _address(listen)
    token = None if token_file is None else _token(token_file)
    with resumable(f"fdml watch {path}"):
        pages.watch(
            pages.Watch(path, run, plain=plain, server=server), host, port, token=token, on_start=_print_address
        )


def _print_address(server: PageServer) -> None:
    echo(f"page: {server.address}")
    if server.host not in LOOPBACK:
        echo("the token is in the address; the line is not encrypted: put a proxy with TLS before it, or use ssh -L")


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"--listen is {listen!r}; it takes an address and a port, as in '127.0.0.1:{_PORT}'")
    return host.strip("[]"), int(port)


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"cannot read the token in {str(path)!r} ({error.strerror})") from None
    if len(token) < 16 or not token.isascii() or not token.replace("-", "").replace("_", "").isalnum():
        raise SettingsError(f"the token in {str(path)!r} must have 16 or more letters, digits, - and _")
    return token
