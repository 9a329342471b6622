"""The sessions of a server's runs, each in a folder of its own: `server/runs/NAME`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fdml.federation.alignment_folders import alignment_folder
from fdml.federation.machine_limits import memory_size
from fdml.federation.run_folder import RUNS, RunFolder
from fdml.protocol.agreed_training import most_lookahead
from fdml.protocol.messages import FromParty
from fdml.server.alignment import AlignmentPhase
from fdml.server.awake_clock import AwakeClock
from fdml.server.generations import Generations
from fdml.server.hosted_run import HostedRun
from fdml.server.replica import Replica
from fdml.server.run_alignment import RunAlignment
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession, Stream
from fdml.settings import RunSettings, run_hash
from fdml.storage.atomic import make_private_folder, write_file
from fdml.storage.disk import FolderDisk
from fdml.storage.lock import exclusive_lock

_LOG_ROOM = 256 * 2**10
"""Bytes by which the log of a run grows at a time: it is written at every step."""
HOSTED = "hosted.json"
"""The record of a run that was proposed: who, with which settings, and what all parties have decided."""


@dataclass(frozen=True)
class OpenedRun:
    """A run's session with what it is made of."""

    session: ServerSession
    state: RunState
    rows: RunAlignment
    close: Callable[[], None]


def alignment_figures(state: RunState, rows: RunAlignment) -> dict[str, Any]:
    """How many rows each party brought, are shared, and are trained on; for JSON."""
    shared = None if rows.shared is None else rows.shared.train
    return {"rows": rows.rows, "shared_rows": shared, "train_rows": state.rows}


class ServerRuns:
    """Opens the runs of a server. Runs with the same alignment share its generations, whoever came first."""

    def __init__(self, home: Path, remark: Callable[[str], None], party: str = "") -> None:
        """`party` is the one that the sessions belong to, where there is no server."""
        self._home = home
        self._party = party
        self._remark = remark
        self._held = ExitStack()
        self._generations: dict[Path, Generations] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def open(self, settings: RunSettings) -> OpenedRun:
        """Go on with a run from what its folder holds; nobody else can until it is closed."""
        folder, clock = RunFolder(self._home, settings), AwakeClock(time.monotonic)
        with ExitStack() as held:
            held.enter_context(exclusive_lock(folder.state, f"server of run {settings.name!r}"))
            folder.begin()
            disk = FolderDisk(folder.state, ahead=_LOG_ROOM)
            held.callback(disk.close)
            definition = RunDefinition(settings, run_hash(settings), memory_size())
            state = RunState.open(definition, disk)
            rows = RunAlignment(settings, disk, self._kept(settings))
            if state.finished:
                self._remark(f"run {settings.name!r} was finished before; a new name begins another")
            elif state.rows:
                self._remark(f"going on with run {settings.name!r} of {state.rows} rows")
            alignment = AlignmentPhase(rows, settings.parties, definition.run_hash, clock)
            session = ServerSession(state, alignment, settings, clock, self._replica(settings))
            return OpenedRun(session, state, rows, held.pop_all().close)

    def _replica(self, settings: RunSettings) -> Replica[Stream, bytes | FromParty] | None:
        return Replica(self._party, settings.parties, most_lookahead(settings.training)) if self._party else None

    def _kept(self, settings: RunSettings) -> Generations:
        """The alignment that a run uses, locked until the server ends."""
        folder = alignment_folder(self._home, settings)
        if folder not in self._generations:
            self._held.enter_context(exclusive_lock(folder, "server with this alignment"))
            disk = FolderDisk(folder)
            self._held.callback(disk.close)
            self._generations[folder] = Generations.of(settings, disk)
        return self._generations[folder]


class HostedRuns:
    """The records of all runs that were ever proposed at a server, each in its run's folder."""

    def __init__(self, home: Path) -> None:
        self._runs = home / RUNS

    def load(self) -> Sequence[HostedRun]:
        """All of them; a damaged one is named."""
        return [HostedRun.from_json(path.read_bytes(), str(path)) for path in sorted(self._runs.glob(f"*/{HOSTED}"))]

    def save(self, run: HostedRun) -> None:
        """Store one in place of what was stored of it; durable on return."""
        folder = self._runs / run.name
        make_private_folder(folder)
        write_file(folder / HOSTED, run.to_json())
