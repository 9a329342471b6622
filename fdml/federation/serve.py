"""The server of a federation: of one run until its end, or standing, for all runs that its parties start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fdml.errors import SettingsError, StateCorrupt
from fdml.events import Listener
from fdml.federation.addresses import checked_address, own_address, with_port
from fdml.federation.key_files import own_credentials
from fdml.federation.server_sessions import HostedRuns, ServerRuns
from fdml.federation.standing import STANDING
from fdml.monitor.listeners import remarks_of
from fdml.party.settings import read_party
from fdml.protocol.certificates import SERVER
from fdml.protocol.identity import Credentials, Identity
from fdml.protocol.run_messages import RunQuery
from fdml.protocol.shuffle import permutation
from fdml.server.host import NO_RUNS, RunHost
from fdml.server.run_alignment import RunAlignment
from fdml.server.run_state import RunState
from fdml.settings import RunSettings
from fdml.settings.federation import FederationSettings, read_federation, read_run
from fdml.storage.atomic import write_file
from fdml.storage.lock import exclusive_lock
from fdml.transport.grpc_endpoint import check_loopback
from fdml.transport.grpc_server import GrpcServer
from fdml.transport.tunnels import Tunnels

Stop = Callable[[], object]
"""Ends a server; safe to call from any thread while it serves."""


@dataclass(frozen=True)
class ServerResult:
    """What a server knows at the end of its run."""

    state: RunState
    alignment: RunAlignment
    traffic: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes that came from each party and that went to it, since this process was started."""


def serve(
    path: Path,
    run: Path,
    *,
    plain: bool = False,
    listen: str | None = None,
    port_file: Path | None = None,
    on_event: Listener = lambda _: None,
    on_start: Callable[[Stop], None] = lambda _: None,
    on_listen: Callable[[str], None] = lambda _: None,
) -> ServerResult:
    """Serve one run until all its parties have finished, going on from what an earlier server stored.

    `path` is the federation.toml, with the server's folder beside it; `run` is the run.toml.
    `listen` is an address other than the one by which the parties reach the server. Port 0 takes a free one, which
    is written to `port_file`. `on_start` is handed a function that stops the server, for another thread to call;
    `serve` then raises `asyncio.CancelledError`. `on_listen` is handed where the server listens, once it does.
    """
    return serve_run(
        path,
        read_run(run, path),
        plain=plain,
        listen=listen,
        port_file=port_file,
        on_event=on_event,
        on_start=on_start,
        on_listen=on_listen,
    )


def serve_run(
    path: Path,
    settings: RunSettings,
    *,
    plain: bool = False,
    listen: str | None = None,
    port_file: Path | None = None,
    on_event: Listener = lambda _: None,
    on_start: Callable[[Stop], None] = lambda _: None,
    on_listen: Callable[[str], None] = lambda _: None,
    party: str = "",
    tunnels: Tunnels | None = None,
) -> ServerResult:
    """As `serve`, of a run whose settings were read before.

    Where there is no server, `path` is the party.toml of the `party` that sums for itself; `tunnels` lead to parties
    that accept no connections.
    """
    remark = remarks_of(party or SERVER, on_event)
    place = _place(path, FederationSettings.of_run(settings), listen, on_event, plain=plain, party=party)
    with _explained(place.home), ServerRuns(place.home, remark, party) as runs:
        opened = runs.open(settings)
        try:
            server = GrpcServer(
                RunHost(place.federation, NO_RUNS, time.time, only=settings),
                lambda _: opened,
                place.federation,
                plain=plain,
                on_event=on_event,
                only=settings.name,
                party=party,
                tunnels=tunnels,
            )
            ready = _ready(f"serving run {settings.name!r}", place.address, port_file, remark, on_listen)
            _listen(server.run(place.address, place.credentials, ready), place.address, on_start)
        finally:
            opened.close()  # if it never was opened
    return ServerResult(opened.state, opened.rows, opened.session.status.traffic)


def serve_federation(
    path: Path,
    *,
    plain: bool = False,
    listen: str | None = None,
    port_file: Path | None = None,
    on_event: Listener = lambda _: None,
    on_start: Callable[[Stop], None] = lambda _: None,
    on_listen: Callable[[str], None] = lambda _: None,
    party: str = "",
    tunnels: Tunnels | None = None,
) -> None:
    """Serve all runs that the parties start, until it is stopped; runs of an earlier server go on.

    The arguments are those of `serve_run`.
    """
    remark = remarks_of(party or SERVER, on_event)
    federation = read_federation(read_party(path).federation if party else path)
    place = _place(path, federation, listen, on_event, plain=plain, party=party)
    with (
        _explained(place.home),
        exclusive_lock(place.home / STANDING, "server of this federation"),
        ServerRuns(place.home, remark, party) as runs,
    ):
        authority = None if place.credentials is None else place.credentials.authority
        host = RunHost(place.federation, HostedRuns(place.home), time.time, authority=authority)
        known = host.listing(RunQuery()).runs
        if known:
            still_open = sum(each.is_open for each in known)
            remark(f"{len(known)} runs are known, {still_open} of them not over")
        server = GrpcServer(
            host,
            runs.open,
            place.federation,
            plain=plain,
            on_event=on_event,
            party=party,
            tunnels=tunnels,
        )
        ready = _ready(f"serving federation {place.federation.name!r}", place.address, port_file, remark, on_listen)
        _listen(server.run(place.address, place.credentials, ready), place.address, on_start)


@dataclass(frozen=True)
class _Place:
    """Where a server is and who it is."""

    home: Path
    federation: FederationSettings
    address: str
    credentials: Credentials | None


def _place(
    path: Path, federation: FederationSettings, listen: str | None, on_event: Listener, *, plain: bool, party: str = ""
) -> _Place:
    home = path.parent / SERVER
    address = checked_address(listen or (own_address(federation, party) if party else federation.server))
    if plain:
        check_loopback(address)
    identity = Identity(federation.name, "party", party) if party else Identity(federation.name, "server", SERVER)
    keys = path.parent / "keys" if party else home / "keys"
    credentials = None if plain else own_credentials(keys, identity, federation, on_event)
    permutation(1, "so that it is compiled or loaded before anyone waits for it")
    return _Place(home, federation, address, credentials)


def _ready(
    what: str,
    address: str,
    port_file: Path | None,
    remark: Callable[[str], None],
    on_listen: Callable[[str], None],
) -> Callable[[int], None]:
    def ready(port: int) -> None:
        remark(f"{what} at {with_port(address, port)}")
        if port_file is not None:
            write_file(port_file, f"{port}\n".encode(), mode=0o644)
        on_listen(with_port(address, port))

    return ready


@contextmanager
def _explained(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateCorrupt(
            f"cannot store the run ({error}); make room in {str(home)!r} and see that it can be written to, then run "
            f"the same command again"
        ) from None


def _listen(work: Coroutine[Any, Any, None], address: str, on_start: Callable[[Stop], None]) -> None:
    async def run() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        on_start(lambda: loop.call_soon_threadsafe(task.cancel))
        await task

    try:
        asyncio.run(run())
    except RuntimeError as error:
        if "bind" not in str(error):
            raise
        raise SettingsError(
            f"cannot listen at {address!r}: another process does, or it is no address of this machine; "
            f"end the other one, or choose an address with --listen"
        ) from None
