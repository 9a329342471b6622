"""The live page beside a run, for `--web`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from fdml.cli.options import PAGE
from fdml.errors import SettingsError
from fdml.events import Listener, Remark
from fdml.federation.page_process import PageProcess
from fdml.monitor.page_server import LOOPBACK


def page_address(listen: str, option: str) -> tuple[str, int]:
    """Host and port of an option."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{option} is {listen!r}; it takes an address and a port, as in {PAGE!r}")
    return host.strip("[]"), int(port)


def web_address(web: bool, listen: str | None) -> str | None:
    """Where the page is asked for; None where it is not. Raises before any work if that cannot be."""
    if listen is None:
        return PAGE if web else None
    host, _ = page_address(listen, "--web-listen")
    if host not in LOOPBACK:
        raise SettingsError(
            f"--web-listen is {listen!r}, which others can reach; it takes addresses of loopback: for others use "
            f"`fdml watch --listen {listen}`, which asks every viewer for a token"
        )
    return listen


def web_page(
    at: str | None, path: Path, side: str, listener: Listener, *, run: str = "", options: Sequence[str] = ()
) -> AbstractContextManager[PageProcess | None]:
    """The page beside a run, not started yet; None where it is not asked for. What it says are remarks of this side."""
    if at is None:
        return nullcontext()
    words = [*(["--run", run] if run else []), *options]
    return PageProcess(path, at, words, lambda text: listener(Remark(side, text)))
