"""The server of a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fdml.errors import SettingsError, StateCorrupt
from fdml.events import Listener
from fdml.federation.addresses import checked_address, with_port
from fdml.federation.alignment_folders import alignment_folder
from fdml.federation.key_files import own_credentials
from fdml.federation.machine_limits import memory_size
from fdml.federation.run_folder import RunFolder
from fdml.monitor.listeners import remarks_of
from fdml.protocol.certificates import SERVER
from fdml.protocol.identity import Credentials, Identity
from fdml.protocol.shuffle import permutation
from fdml.server.alignment import AlignmentPhase
from fdml.server.awake_clock import AwakeClock
from fdml.server.generations import Generations
from fdml.server.run_alignment import RunAlignment
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession
from fdml.settings import RunSettings, run_hash
from fdml.settings_federation import read_run
from fdml.storage.atomic import write_file
from fdml.storage.disk import FolderDisk
from fdml.storage.lock import exclusive_lock
from fdml.transport.grpc_endpoint import check_loopback
from fdml.transport.grpc_server import GrpcServer

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
    run: Path | None = None,
    *,
    plain: bool = False,
    listen: str | None = None,
    port_file: Path | None = None,
    on_event: Listener = lambda _: None,
    on_start: Callable[[Stop], None] = lambda _: None,
) -> ServerResult:
    """Serve a run until all its parties have finished, going on from what an earlier server stored.

    `path` is the federation.toml, with the server's folder beside it; `run` is the run.toml, if not the one beside it.
    `listen` is an address other than the one by which the parties reach the server. Port 0 takes a free one, which
    is written to `port_file`. `on_start` is handed a function that stops the server, for another thread to call;
    `serve` then raises `asyncio.CancelledError`.
    """
    settings = read_run(run, path)
    home, address = path.parent / "server", checked_address(listen or settings.server)
    if plain:
        check_loopback(address)
    identity = Identity(settings.federation, "server", SERVER)
    credentials = None if plain else own_credentials(home / "keys", identity, settings, on_event)
    folder = RunFolder(home, settings)
    try:
        return _serve(
            settings,
            home,
            folder,
            address,
            credentials,
            port_file=port_file,
            on_event=on_event,
            on_start=on_start,
        )
    except OSError as error:
        raise StateCorrupt(
            f"cannot store the run ({error}); make room in {str(folder.state)!r} and see that it can be written to, "
            f"then run the same command again"
        ) from None


def _serve(
    settings: RunSettings,
    home: Path,
    folder: RunFolder,
    address: str,
    credentials: Credentials | None,
    *,
    port_file: Path | None,
    on_event: Listener,
    on_start: Callable[[Stop], None],
) -> ServerResult:
    remark, clock = remarks_of("server", on_event), AwakeClock(time.monotonic)
    kept, holder = alignment_folder(home, settings), f"server of run {settings.name!r}"
    with exclusive_lock(folder.state, holder), exclusive_lock(kept, "server with this alignment"):
        folder.begin()
        disk = FolderDisk(folder.state)
        definition = RunDefinition(settings, run_hash(settings), memory_size())
        state = RunState.open(definition, disk)
        rows = RunAlignment(settings, disk, Generations.of(settings, FolderDisk(kept)))
        if state.finished:
            remark(f"run {settings.name!r} was finished before; a new name begins another")
        elif state.rows:
            remark(f"going on with a run of {state.rows} rows")
        permutation(1, "so that it is compiled or loaded before anyone waits for it")
        alignment = AlignmentPhase(rows, settings.parties, definition.run_hash, clock)
        session = ServerSession(state, alignment, settings, clock)
        server = GrpcServer(session, settings, plain=credentials is None, on_event=on_event)

        def ready(port: int) -> None:
            remark(f"serving run {settings.name!r} at {with_port(address, port)}")
            if port_file is not None:
                write_file(port_file, f"{port}\n".encode(), mode=0o644)

        _listen(server.run(address, credentials, ready), address, on_start)
    return ServerResult(state, rows, session.status.traffic)


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
