"""Can one party, or anyone who reaches the port, hold the others up?

Three parties train over mutual TLS at a real server process. In turns they are
left alone, and attacked: 1,300 idle connections, 650 that begin a handshake and stop,
compressed calls, calls of 20 MiB and mutated messages with the certificate of one of the
parties, all at once. Attackers are elsewhere as a rule, and here on the same machine: they are given only the
processor time that nobody else wants (`SCHED_IDLE`), as their own work is not the server's. How many cores it
takes is told, and how much more the server itself computes.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attackers import Target, attack
from benchmarks.cluster import Cluster, write_run
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.ports import reserved_port
from fdml.errors import FdmlError
from fdml.events import Event, StepDone
from fdml.federation.join import join
from fdml.federation.key_files import read_credentials
from fdml.federation.machine_limits import raise_open_files, tune_party_process, tune_server_process
from fdml.federation.serve import serve
from fdml.monitor.listeners import ignore_events
from fdml.protocol.messages import Hello
from fdml.settings import run_hash
from fdml.settings.federation import read_run

_PARTIES = ("p0", "p1", "p2")
_ROWS = 20_000
_MESSAGES = 100_000
_LEAST_SECONDS = 8.0
"""Of each calm and of each attack."""
_LONGEST_SECONDS = 900.0
"""Of one attack."""
_NOTE_EVERY = 20
"""Steps after which a party writes down the time."""
_LOOK_SECONDS = 0.05
_YIELDS = hasattr(os, "SCHED_IDLE")
"""Whether attackers can be told to leave the processor to the others where both want it."""
_SETTINGS = (
    '[training]\nepochs = 100000\nbatch_size = 100\nbatches_per_block = 1\nlearning_rate = "auto"\n'
    "peer_timeout_seconds = 120.0\n"
    '[evaluation]\nevery = "end"\n'
)


def run(progress: Progress, rounds: int = 5) -> Report:
    """Alternate calm and attack in one run."""
    with tempfile.TemporaryDirectory(prefix="fdml-load-") as folder, reserved_port() as port:
        home = Path(folder) / "run"
        _write(home)
        cluster = Cluster(home, port, seconds=3600.0, live=_run_side_noted)
        try:
            for name in ("server", *_PARTIES):
                cluster.start(name)
            cluster.await_training()
            found = [_round(home, cluster, port, number, rounds, progress) for number in range(rounds)]
        finally:
            cluster.stop()
    sent = sum((each.sent for each in found), Counter())
    results = [
        row("step, left alone", [1e3 * each.calm for each in found], "ms"),
        row("step, under attack", [1e3 * each.attacked for each in found], "ms"),
        row("server's own work, left alone", [each.server_calm for each in found], "cores"),
        row("server's own work, under attack", [each.server_attacked for each in found], "cores"),
        row("attackers' own work", [each.attackers for each in found], "cores of this machine"),
        row("server's memory, most growth under attack", [each.growth for each in found], "MB, at most 100"),
        *(row(f"sent: {name}", [count], "in all") for name, count in sorted(sent.items())),
    ]
    ratios = {"step under attack/left alone, at most 1.5": spread([each.attacked / each.calm for each in found])}
    question = (
        f"How much longer does a step of honest parties take while the server is attacked? Attackers on the same "
        f"machine, {'with processor time that nobody else wants' if _YIELDS else 'which take their share of it'}."
    )
    return Report("load", question, results, ratios, machine(), commit())


@dataclass(frozen=True)
class Round:
    """One calm and one attack."""

    calm: float
    """Seconds of a step."""
    attacked: float
    growth: float
    """MB of the server's memory, from the end of the calm to the most under attack."""
    server_calm: float
    """Cores that the server keeps busy."""
    server_attacked: float
    attackers: float
    """Cores that the attackers keep busy."""
    sent: Counter[str]


def _round(home: Path, cluster: Cluster, port: int, number: int, rounds: int, progress: Progress) -> Round:
    progress(f"round {number + 1} of {rounds}: left alone")
    before = _cpu(cluster)
    calm = time.monotonic(), _sleep(_LEAST_SECONDS)
    between = _cpu(cluster)
    memory = _MemoryWatch(cluster.pid("server"))
    progress(f"round {number + 1} of {rounds}: under attack")
    began, ended, sent, busy = _attacked(home, port, -(-_MESSAGES // rounds), number)
    after = _cpu(cluster)
    if not cluster.is_running:
        raise FdmlError("the run has ended under attack")
    return Round(
        calm=_step_seconds(home, *calm),
        attacked=_step_seconds(home, began, ended),
        growth=memory.growth(),
        server_calm=(between - before) / (calm[1] - calm[0]),
        server_attacked=(after - between) / (ended - began),
        attackers=busy / (ended - began),
        sent=sent,
    )


def _cpu(cluster: Cluster) -> float:
    """Seconds of processor time that the server has had."""
    return cluster.cpu("server") or 0.0


def _sleep(seconds: float) -> float:
    time.sleep(seconds)
    return time.monotonic()


def _attacked(home: Path, port: int, messages: int, seed: int) -> tuple[float, float, Counter[str], float]:
    """Attack from a process of its own; gives when it began and ended, what was sent, and its processor time."""
    context = multiprocessing.get_context("spawn")
    sent: Any = context.Queue()
    attacker = context.Process(target=_attack, args=(home, port, messages, seed, _LEAST_SECONDS, sent), daemon=True)
    attacker.start()
    began: float = sent.get(timeout=_LONGEST_SECONDS)
    found: Counter[str]
    found, busy = sent.get(timeout=_LONGEST_SECONDS)
    ended = time.monotonic()
    attacker.join()
    return began, ended, found, busy


def _attack(home: Path, port: int, messages: int, seed: int, least_seconds: float, sent: Any) -> None:
    yield_processor()
    raise_open_files()
    settings = read_run(home / "run.toml")
    hello = Hello(run_hash(settings), bytes(32), _ROWS, 1, 1)
    target = Target(port, read_credentials(home / _PARTIES[-1] / "keys"), hello)
    before = time.process_time()
    sent.put(time.monotonic())
    attack(target, messages, seed, least_seconds)
    sent.put((target.sent, time.process_time() - before))


def yield_processor() -> bool:
    """Have this thread, and those it starts, take only processor time that nobody else wants; whether that can be.

    `nice` would not do: where sessions are groups of their own, it counts within a group alone.
    """
    if _YIELDS:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return _YIELDS


class _MemoryWatch:
    """The most memory of a process, looked at from a thread."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._first = self._most = self._now()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def growth(self) -> float:
        """MB more than at the beginning, at most; ends the watch."""
        self._ended.set()
        self._thread.join()
        return self._most - self._first

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._most = max(self._most, self._now())

    def _now(self) -> float:
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _write(home: Path) -> None:
    chance = np.random.default_rng(0)
    X = chance.normal(size=(_ROWS, 5 * len(_PARTIES))).astype(np.float32)
    parts = [np.ascontiguousarray(part) for part in np.split(X, len(_PARTIES), axis=1)]
    write_run(home, _SETTINGS, parts, (X.sum(axis=1) > 0).astype(np.int64), ['kind = "linear"'] * len(_PARTIES))


def _run_side_noted(home: Path, name: str, address: str) -> None:
    """Be the server, or a party that writes down when it has done its steps."""
    if name == "server":
        tune_server_process()
        serve(home / "federation.toml", home / "run.toml", listen=address, on_event=ignore_events)
        return
    with (home / name / "steps").open("a", buffering=1) as file:

        def note(event: Event) -> None:
            if isinstance(event, StepDone) and event.step % _NOTE_EVERY == 0:
                file.write(f"{event.step} {time.monotonic()}\n")

        tune_party_process()
        join(home / name / "party.toml", server=address, on_event=note)


def _step_seconds(home: Path, began: float, ended: float) -> float:
    """Seconds of a step between two moments: the mean over the parties."""
    steps = 0
    for party in _PARTIES:
        times = [float(line.split()[1]) for line in (home / party / "steps").read_text().split("\n")[:-1]]
        steps += _NOTE_EVERY * sum(began <= at <= ended for at in times)
    return len(_PARTIES) * (ended - began) / max(steps, 1)
