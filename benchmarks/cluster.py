"""Server and parties of a run as processes, for benchmarks that start many runs.

They are forked from one process that has everything imported, so a start takes
a fraction of a second; each is a process of its own that can be killed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.ports import reserved_port
from fdml.errors import FdmlError, PeerTimeout
from fdml.events import Evaluated
from fdml.federation.join import join
from fdml.federation.machine_limits import tune_party_process
from fdml.federation.party_folder import HISTORY
from fdml.federation.run_folder import RUNS, STATE
from fdml.federation.scaffold import write_keys
from fdml.federation.serve import serve
from fdml.monitor.history import read_history
from fdml.monitor.listeners import ignore_events
from fdml.server.run_state import RunDefinition, RunState
from fdml.settings import run_hash
from fdml.settings.federation import read_run
from fdml.storage.disk import FolderDisk

_DEADLINE = 120.0
"""Seconds a whole run may take."""
_USAGE = "usage.json"
_LOOK_SECONDS = 0.3
Live = Callable[[Path, str, str], None]
"""What a process of a run does, given the run's folder, "server" or a party's name, and the server's address."""


@dataclass(frozen=True)
class Usage:
    """What one process of a run took, from its start to its end."""

    cpu: float
    """Seconds, of all its threads."""
    memory: float
    """MiB, the largest resident size, with what it shares or has mapped from files."""
    traffic: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """At the server: bytes that came from each party and that went to it."""


class Together(NamedTuple):
    """Memory of processes together, in MiB."""

    own: float
    """What they have allocated."""
    resident: float
    """With the pages of mapped files, which the system may drop at any time."""


class Cluster:
    """Server and parties of one run, each a process forked from one that has everything imported."""

    def __init__(self, home: Path, port: int, seconds: float = _DEADLINE, live: Live | None = None) -> None:
        """`live` is what each process does: the server and the parties of the run, if left out."""
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["benchmarks.cluster", "benchmarks.preload"])
        self._home = home
        self._address = f"127.0.0.1:{port}"
        self._live = live or run_side
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._members: dict[str, ForkServerProcess] = {}

    def start(self, name: str) -> None:
        """Start a process, for the first time or again."""
        process = self._context.Process(target=self._live, args=(self._home, name, self._address), daemon=True)
        process.start()
        self._members[name] = process

    def pid(self, name: str) -> int:
        """The number of a process that was started."""
        found = self._members[name].pid
        if found is None:
            raise FdmlError(f"{name} in {self._home} has not been started")
        return found

    def kill(self, name: str) -> bool:
        """End a process as a power cut would; says whether it still ran."""
        process = self._members[name]
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join(self._left())
        return process.exitcode == -signal.SIGKILL

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process, if it still runs."""
        process = self._members[name]
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, number)

    def await_end(self, name: str) -> None:
        """Wait for the end of a process."""
        self._members[name].join(self._left())

    @property
    def is_running(self) -> bool:
        """Whether any process has not ended; one that failed is an error."""
        failed = [name for name, process in self._members.items() if process.exitcode not in (None, 0)]
        if failed:
            raise FdmlError(f"{', '.join(failed)} in {self._home} failed with {self._members[failed[0]].exitcode}")
        return any(process.is_alive() for process in self._members.values())

    def await_training(self) -> None:
        """Wait until pushes reach the server's log."""
        log = server_state(self._home) / "journal"
        while not (log.exists() and log.stat().st_size > 2**16):
            self._left()
            time.sleep(0.005)

    def cpu(self, name: str) -> float | None:
        """Seconds of CPU a process has had, to the microsecond; None once it has ended."""
        process = self._members[name]
        if process.pid is None or not process.is_alive():
            return None
        with suppress(FileNotFoundError, ProcessLookupError):  # it, or one of its threads, ends as we look
            return cpu_of(process.pid)
        return None

    def finish(self) -> None:
        """Wait for the end of all; a process that failed is an error."""
        for name, process in self._members.items():
            process.join(self._left())
            if process.exitcode != 0:
                raise FdmlError(f"{name} in {self._home} ended with exit code {process.exitcode}")

    def finish_watched(self) -> Together:
        """As `finish`; gives the most memory that all had together, what they share counted once."""
        own, resident = 0.0, 0.0
        while any(process.is_alive() for process in self._members.values()):
            self._left()
            found = [memory_of(process.pid) for process in self._members.values()]
            own = max(own, sum(each.own for each in found))
            resident = max(resident, sum(each.resident for each in found))
            time.sleep(_LOOK_SECONDS)
        self.finish()
        return Together(own, resident)

    def stop(self) -> None:
        """End whatever still runs."""
        for process in self._members.values():
            process.kill()
            process.join()

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            waiting = [name for name, process in self._members.items() if process.is_alive()]
            raise PeerTimeout(f"the run in {self._home} did not end within {self._seconds:g} s; {waiting} still run")
        return left


def cpu_of(pid: int) -> float:
    """Seconds of CPU that all threads of a process have had."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def memory_of(pid: int | None) -> Together:
    """Of one process, its share of what it has in common with others; nothing once it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return Together(kilobytes["Pss_Anon"] / 1024, kilobytes["Pss"] / 1024)
    return Together(0.0, 0.0)


@contextmanager
def running(home: Path, parties: Sequence[str], seconds: float = _DEADLINE) -> Iterator[Cluster]:
    """All processes of a run, which must end within `seconds`; whatever still runs at the end is killed."""
    with reserved_port() as port:
        cluster = Cluster(home, port, seconds)
        try:
            for name in ("server", *parties):
                cluster.start(name)
            yield cluster
        finally:
            cluster.stop()


def run_side(home: Path, name: str, address: str) -> None:
    """Be the server of a run or one of its parties, to the end."""
    traffic: Mapping[str, tuple[int, int]] = {}
    if name == "server":
        traffic = serve(home / "federation.toml", home / "run.toml", listen=address, on_event=ignore_events).traffic
    else:
        tune_party_process()
        join(home / name / "party.toml", server=address, on_event=ignore_events)
    used = resource.getrusage(resource.RUSAGE_SELF)
    usage = Usage(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, traffic)
    (home / name / _USAGE).write_text(json.dumps(asdict(usage)))


def run_folder(home: Path, side: str) -> Path:
    """Where a side of the run in this folder keeps it."""
    return home / side / RUNS / read_run(home / "run.toml").name


def server_state(home: Path) -> Path:
    """Where the server keeps the state of the run."""
    return run_folder(home, "server") / STATE


def usages(home: Path, parties: Sequence[str]) -> dict[str, Usage]:
    """What each process of a finished run took."""
    return {name: Usage(**json.loads((home / name / _USAGE).read_text())) for name in ("server", *parties)}


def history_of(home: Path) -> dict[int, Evaluated]:
    """The metrics of a run's epochs, from the file that its label party keeps."""
    return read_history(run_folder(home, read_run(home / "run.toml").label_party) / HISTORY)


def seconds_at_epochs(home: Path) -> dict[int, float]:
    """Training seconds up to the end of every epoch of a run."""
    return {epoch: each.seconds or 0.0 for epoch, each in history_of(home).items()}


def finished_state(home: Path) -> RunState:
    """The server of a run from its stored state."""
    settings = read_run(home / "run.toml")
    return RunState.open(RunDefinition(settings, run_hash(settings)), FolderDisk(server_state(home)))


def write_run(
    home: Path,
    settings: str,
    parts: Sequence[NDArray[np.float32]],
    labels: NDArray[np.int64],
    models: Sequence[str],
) -> None:
    """Write a run of parties p0, p1, ... with these features; `settings` of the run and `models` are TOML."""
    names = [f"p{number}" for number in range(len(parts))]
    home.mkdir(parents=True)
    (home / "federation.toml").write_text(f'name = "bench"\nserver = "127.0.0.1:0"\nparties = {names!r}\n')
    (home / "run.toml").write_text(f'name = "first"\nlabel_party = "p0"\n{settings}\n')
    write_keys(home, "bench", names)
    for name, part, model in zip(names, parts, models, strict=True):
        if name == "p0":
            np.savez(home / name / "data.npz", X=part, y=labels)
        else:
            np.savez(home / name / "data.npz", X=part)
        (home / name / "party.toml").write_text(
            f'party = "{name}"\nfederation = "../federation.toml"\n[align]\nmax_rows = {10**9}\n'
            f'[data]\npath = "data.npz"\n[model]\n{model}\n'
        )
