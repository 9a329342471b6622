"""Does a standing server grow? Many runs, and parties that are stopped, killed and started again all the while.

One `fdml serve` and two `fdml up` as processes over mutual TLS. Runs are started one after the other; at random
moments a party is ended in order, killed, or the process of its run is. The server is never touched: what it holds
after each run is the figure. All runs have the same settings, so all must end with the same models to the bit.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.cluster import Cluster, write_run
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report
from benchmarks.ports import reserved_port
from fdml.errors import ExchangeError, PeerTimeout
from fdml.federation.party_home import PartyHome
from fdml.federation.run_folder import MODEL, RUNS, STATE
from fdml.federation.runs import listing, start
from fdml.federation.serve import serve_federation
from fdml.federation.up import up
from fdml.models.bundle import Bundle
from fdml.monitor.listeners import ignore_events
from fdml.storage.lock import LOCK, is_locked

PARTIES = ("p0", "p1")
_DEADLINE = 3600.0
_LOOK_SECONDS = 0.2
_WAYS = ("ended in order", "killed", "its run's process killed")


@dataclass(frozen=True)
class Held:
    """What the server holds at one moment."""

    memory: float
    """MiB of its own data, those included that it still shares with the process that it was forked from: what it shares
    becomes its own as it is touched, which is no growth."""
    files: int
    """Open files and sockets."""


@dataclass(frozen=True)
class Chaos:
    """What came of it."""

    held: tuple[Held, ...]
    """Before the first run, and after each once nothing was under way."""
    finished: int
    identical: bool
    cycles: dict[str, int]
    """How often each was done."""


def run(progress: Progress, rounds: int = 20, runs: int = 10) -> Report:
    """Disturb a federation `rounds` times over so many runs."""
    with tempfile.TemporaryDirectory(prefix="fdml-standing-") as folder, reserved_port() as port:
        found = disturb(Path(folder) / "home", port, rounds, runs, progress)
    held = found.held
    rows = [
        _row("server's memory after the first run", held[1].memory, "MiB"),
        _row("server's memory after the last run", held[-1].memory, "MiB"),
        _row("server's open files before the first run", held[0].files, "files"),
        _row("server's open files after the first run", held[1].files, "files"),
        _row("server's open files after the last run", held[-1].files, "files"),
        _row("runs that finished", found.finished, f"of {runs}"),
        _row("all runs ended with the same models", int(found.identical), "of 1"),
        *(
            _row(f"a party was {way}" if way != _WAYS[2] else way, times, "times")
            for way, times in found.cycles.items()
        ),
    ]
    question = f"What does a standing server hold after {runs} runs with {rounds} parties stopped and killed?"
    return Report("standing", question, rows, {}, machine(), commit())


def disturb(home: Path, port: int, rounds: int, runs: int, progress: Progress, seed: int = 0) -> Chaos:
    """Start runs one after the other, and end, kill and start parties all the while."""
    chance = random.Random(seed)
    _write(home, port)
    cluster = Cluster(home, port, _DEADLINE, stand_by)
    cycles = dict.fromkeys(_WAYS, 0)
    try:
        for name in ("server", *PARTIES):
            cluster.start(name)
        party = PartyHome.read(home / "p0" / "party.toml", server=f"127.0.0.1:{port}")
        _await_parties(party)
        held = [_held(cluster.pid("server"))]
        for number in range(runs):
            _start(party, f"run-{number}", home)
            for _ in range(rounds * (number + 1) // runs - rounds * number // runs):
                way, victim = chance.choice(_WAYS), chance.choice(PARTIES)
                _await_process(home, victim, f"run-{number}")
                time.sleep(chance.uniform(0.0, 1.0))
                _disturb(cluster, home, victim, way, f"run-{number}")
                cycles[way] += 1
                progress(f"run {number}: {victim} {way}")
            _await_end(home, f"run-{number}")
            held.append(_held(cluster.pid("server")))
            progress(f"run {number} finished; the server holds {held[-1].memory:.1f} MiB, {held[-1].files} files")
        states = [each.state for each in listing(party).runs]
        names = [f"run-{number}" for number in range(runs)]
        identical = len({_models_hash(home, name) for name in names}) == 1
        return Chaos(tuple(held), states.count("finished"), identical, cycles)
    finally:
        for name in PARTIES:
            cluster.signal(name, signal.SIGTERM)
        time.sleep(2.0)  # for the processes of runs, which they end
        cluster.stop()


def stand_by(home: Path, name: str, address: str) -> None:
    """Be the standing server or a standing party."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        if name == "server":
            serve_federation(home / "federation.toml", listen=address, on_event=ignore_events)
        else:
            up(home / name / "party.toml", server=address, on_event=ignore_events)


def _write(home: Path, port: int) -> None:
    chance = np.random.default_rng(0)
    X = chance.normal(size=(2000, 8)).astype(np.float32)
    labels = (X @ chance.normal(size=8) > 0).astype(np.int64)
    settings = "[training]\nepochs = 40\nbatch_size = 50\nbatches_per_block = 1\ncheckpoint_seconds = 0.2"
    write_run(home, settings, (X[:, :4], X[:, 4:]), labels, ['kind = "linear"'] * 2)
    text = (home / "federation.toml").read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}")
    (home / "federation.toml").write_text(text)
    for party in PARTIES:
        with (home / party / "party.toml").open("a") as file:
            file.write('[policy]\naccept = "policy"\n')


def _start(party: PartyHome, name: str, home: Path) -> None:
    path = home / f"{name}.toml"
    path.write_text((home / "run.toml").read_text().replace('name = "first"', f'name = "{name}"'))
    start(party, path)


def _disturb(cluster: Cluster, home: Path, victim: str, way: str, name: str) -> None:
    if way == _WAYS[2]:
        state = home / victim / RUNS / name / STATE
        if is_locked(state):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int((state / LOCK).read_text()), signal.SIGKILL)
        return
    if way == "killed":
        cluster.kill(victim)
    else:
        cluster.signal(victim, signal.SIGTERM)
        cluster.await_end(victim)
    cluster.start(victim)


def _await_process(home: Path, party: str, name: str) -> None:
    """Wait until a party's process of a run works, or its model is there."""
    _until(lambda: is_locked(home / party / RUNS / name / STATE) or (home / party / RUNS / name / MODEL).is_dir())


def _await_end(home: Path, name: str) -> None:
    folders = [home / party / RUNS / name for party in PARTIES]
    _until(lambda: all((folder / MODEL).is_dir() and not is_locked(folder / STATE) for folder in folders))


def _await_parties(party: PartyHome) -> None:
    def are_here() -> bool:
        with suppress(ExchangeError):
            return set(listing(party).here) == set(PARTIES)
        return False

    _until(are_here)


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not true():
        if time.monotonic() > deadline:
            raise PeerTimeout(f"it did not come about within {_DEADLINE:g} s")
        time.sleep(_LOOK_SECONDS)


def _held(pid: int) -> Held:
    time.sleep(2.0)  # a finished run is closed once its parties have left
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
    return Held(kilobytes / 1024, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def _models_hash(home: Path, name: str) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for party in PARTIES:
        parameters = Bundle.load(home / party / RUNS / name / MODEL).parameters
        for each in sorted(parameters):
            digest.update(each.encode() + parameters[each].tobytes())
    return digest.digest()


def _row(what: str, value: float, unit: str) -> dict[str, object]:
    return {"contender": what, "median": value, "min": value, "max": value, "unit": unit}
