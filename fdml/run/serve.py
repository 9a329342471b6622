"""The server of a run, as a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from fdml.data.disk import FolderDisk
from fdml.errors import SettingsError
from fdml.exchange.certificates import read_credentials
from fdml.exchange.messages import Metrics
from fdml.run.join import check_loopback
from fdml.server.grpc_server import GrpcServer
from fdml.server.host import Charter, Host
from fdml.settings import read_run, run_hash


def serve(path: Path, *, fresh: bool = False, plain: bool = False, say: Callable[[str], None]) -> Host:
    """Serve a run until all its parties have finished, going on from what an earlier server stored."""
    settings = read_run(path)
    home = path.parent / "server"
    if plain:
        check_loopback(settings.server)
    credentials = None if plain else read_credentials(home / "keys")
    disk = FolderDisk(home / "state")
    charter = Charter(settings, run_hash(settings))
    _check_same_run(disk, charter, fresh=fresh)
    host = Host.open(charter, disk)
    if host.finished:
        say(f"run {settings.name!r} was finished before; --fresh starts it over")
        return host
    if host.rows:
        say(f"going on with a run of {host.rows} rows")
    try:
        asyncio.run(
            GrpcServer(host, settings, plain=plain).run(
                settings.server, credentials, lambda _: say(f"serving run {settings.name!r} at {settings.server}")
            )
        )
    except RuntimeError as error:
        if "bind" not in str(error):
            raise
        raise SettingsError(f"cannot listen at {settings.server!r}; is another server running there?") from None
    return host


def _check_same_run(disk: FolderDisk, charter: Charter, *, fresh: bool) -> None:
    """Stored state of other settings is never gone on with."""
    if fresh:
        for name in ("run", "journal", "snapshot.0", "snapshot.1"):
            disk.remove(name)
    known = disk.read("run")
    if known is not None and known != charter.run_hash:
        raise SettingsError("run.toml has changed since this run began; put it back, or start over with --fresh")
    disk.replace("run", charter.run_hash)


def history(host: Host) -> list[Metrics]:
    """What the label party reported, epoch by epoch."""
    return [host.history[epoch] for epoch in sorted(host.history)]
