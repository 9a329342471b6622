"""How much slower does training get on a real network, and which settings suit it?

Server and parties are processes on this machine; each party's line goes through
a proxy that delays it and limits its rate. Seconds count from the moment the
server has the labels, when all parties may begin, to the end of the first epoch
after which the held-out rows' AUC is good enough, at the last party. In the second
part the parties' processes are stopped at random for a while.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import numpy as np

from fdml.bench.cluster import Cluster, write_run
from fdml.bench.proxy import Proxy
from fdml.errors import FdmlError, WaitedTooLong
from fdml.exchange.messages import Labels
from fdml.run.join import join
from fdml.run.scaffold import free_port
from fdml.run.serve import serve
from fdml.watch.events import EpochDone, Event

PARTIES = ("p0", "p1", "p2")
TOLERANCE = 0.002
"""How far below the loopback run's last AUC is good enough."""
TIMES = 3.0
"""The slowest line may take so many times as long as loopback."""
MEGABIT = 125_000
"""Bytes a second."""
_WIDTH = 20
"""Features of each party."""
_HELD_OUT = 0.02
_LOOK_SECONDS = 0.01
_LABEL_BYTES = 16
_START_SECONDS = 120.0
"""How long a run may take to begin."""


@dataclass(frozen=True)
class Line:
    """What the way to the server is like, in each direction of each party's connection."""

    name: str
    round_trip: float = 0.0
    """Seconds."""
    rate: float = 0.0
    """Bytes a second; 0 for no limit."""

    @property
    def is_direct(self) -> bool:
        """Whether it goes through no proxy."""
        return self.round_trip == 0.0 and self.rate == 0.0


LOOPBACK = Line("loopback")
LINES = (
    LOOPBACK,
    Line("1 ms", 0.001, 100 * MEGABIT),
    Line("20 ms", 0.02, 100 * MEGABIT),
    Line("100 ms", 0.1, 100 * MEGABIT),
)
FAR = LINES[-1]


@dataclass(frozen=True)
class Setting:
    """A way to train, as run.toml has it under [training]."""

    name: str
    toml: str = ""
    epochs: int = 3

    @property
    def text(self) -> str:
        """All of run.toml that follows the names."""
        return (
            f'[training]\nepochs = {self.epochs}\nlearning_rate = "auto"\n{self.toml}\n'
            f'[evaluation]\nholdout = {_HELD_OUT}\nwhen = "epoch"\n'
        )


@dataclass(frozen=True)
class Pauses:
    """When the parties' processes are stopped: each for itself, for 50 to 300 ms, about twice in three seconds."""

    seed: int
    gap: float = 1.2
    least: float = 0.05
    most: float = 0.3

    def plan(self, seconds: float) -> list[tuple[float, int, signal.Signals]]:
        """What to send to which party after how many seconds."""
        plan: list[tuple[float, int, signal.Signals]] = []
        for party in range(len(PARTIES)):
            random, now = Random(f"{self.seed} {party}"), 0.0
            while (now := now + random.expovariate(1.0 / self.gap)) < seconds:
                plan.append((now, party, signal.SIGSTOP))
                now += random.uniform(self.least, self.most)
                plan.append((now, party, signal.SIGCONT))
        return sorted(plan)


@dataclass(frozen=True)
class Course:
    """How a run went: seconds since training could begin and test AUC, epoch by epoch."""

    aucs: Mapping[int, float]
    seconds: Mapping[int, float]
    """To the end of the epoch at the last party."""

    @property
    def last_auc(self) -> float:
        """Of the last epoch that was judged."""
        return self.aucs[max(self.aucs)] if self.aucs else 0.0

    def seconds_to(self, auc: float) -> float | None:
        """To the end of the first epoch that is good enough; None if none is."""
        return next((self.seconds[epoch] for epoch in sorted(self.aucs) if self.aucs[epoch] >= auc), None)


class _Clocked(Cluster):
    """A cluster whose parties write down when each of their epochs ended."""

    def start(self, name: str) -> None:
        """Start a process."""
        process = self._context.Process(target=_live, args=(self._home, name), daemon=True)
        process.start()
        self._members[name] = process

    def signal(self, name: str, what: signal.Signals) -> None:
        """Send a signal to a process, if it still runs."""
        process = self._members[name]
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, what)

    @property
    def running(self) -> bool:
        """Whether any process has not ended; one that failed is an error."""
        failed = [name for name, process in self._members.items() if process.exitcode not in (None, 0)]
        if failed:
            raise FdmlError(f"{', '.join(failed)} in {self._home} failed with {self._members[failed[0]].exitcode}")
        return any(process.is_alive() for process in self._members.values())


def _live(home: Path, name: str) -> None:
    if name == "server":
        serve(home / "run.toml", say=_nothing)
        return

    def note(event: Event) -> None:
        if isinstance(event, EpochDone):
            with (home / name / "epochs").open("a") as file:
                file.write(f"{event.epoch} {time.monotonic()}\n")

    join(home / name / "party.toml", listener=note, say=_nothing)


def _nothing(_: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Ground:
    """A folder with the data of all parties, in which one run after another is made."""

    home: Path
    rows: int

    @classmethod
    def make(cls, home: Path, rows: int) -> Ground:
        """Draw features that are alike across the parties, and labels that they predict in part."""
        chance = np.random.default_rng(0)
        X = chance.normal(size=(rows, _WIDTH * len(PARTIES))).astype(np.float32)
        X += 0.5 * chance.normal(size=(rows, 1)).astype(np.float32)
        score = X @ chance.normal(size=X.shape[1]).astype(np.float32)
        score *= 1.5 / score.std()
        labels = (chance.random(rows) < 1.0 / (1.0 + np.exp(-score))).astype(np.int64)
        parts = [np.ascontiguousarray(part) for part in np.split(X, len(PARTIES), axis=1)]
        write_run(home, "", parts, labels, [""] * len(PARTIES))
        return cls(home, rows)

    def train(self, setting: Setting, line: Line = LOOPBACK, longest: float = 60.0, pauses: Pauses | None = None) -> Course:
        """One run from the start; given up after `longest` seconds of training."""
        target = free_port()
        self._clear()
        (self.home / "run.toml").write_text(
            f'name = "bench"\nserver = "127.0.0.1:{target}"\nparties = {list(PARTIES)!r}\nlabel_party = "p0"\n'
            f"{setting.text}"
        )
        with proxies(target, line) as ports:
            for name, port in zip(PARTIES, ports, strict=True):
                (self.home / name / "party.toml").write_text(
                    f'party = "{name}"\nrun = "../run.toml"\nserver = "127.0.0.1:{port}"\n[data]\npath = "data.npz"\n'
                )
            cluster = _Clocked(self.home)
            try:
                for name in ("server", *PARTIES):
                    cluster.start(name)
                began = self._await_labels(cluster)
                _attend(cluster, began, longest, [] if pauses is None else pauses.plan(longest))
            finally:
                cluster.stop()
        return self._course(began)

    def _clear(self) -> None:
        for name in ("server", *PARTIES):
            shutil.rmtree(self.home / name / "state", ignore_errors=True)
            for left in ("epochs", "history.json", "model.npz"):
                (self.home / name / left).unlink(missing_ok=True)

    def _await_labels(self, cluster: _Clocked) -> float:
        """Wait until the server has logged the labels; gives the time."""
        log, deadline = self.home / "server" / "state" / "journal", time.monotonic() + _START_SECONDS
        while not log.exists() or log.stat().st_size < Labels.sealed_size(self.rows):
            if time.monotonic() > deadline:
                raise WaitedTooLong(f"the run in {self.home} did not begin within {_START_SECONDS:g} s")
            if not cluster.running:
                raise FdmlError(f"the run in {self.home} ended before it began")
            time.sleep(_LOOK_SECONDS)
        return time.monotonic()

    def _course(self, began: float) -> Course:
        path = self.home / "p0" / "history.json"
        history = json.loads(path.read_text()) if path.exists() else []
        ends = [_ends(self.home / name / "epochs") for name in PARTIES]
        done = set.intersection(*map(set, ends))
        seconds = {epoch: max(each[epoch] for each in ends) - began for epoch in done}
        return Course({each["epoch"]: each["test_metric"] for each in history if each["epoch"] in done}, seconds)


def _ends(path: Path) -> dict[int, float]:
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return {int(epoch): float(at) for epoch, at in map(str.split, lines)}


def _attend(cluster: _Clocked, began: float, longest: float, plan: Sequence[tuple[float, int, signal.Signals]]) -> None:
    """Wait for the end of a run, or give it up; processes are stopped and woken as planned."""
    due = 0
    while cluster.running and (now := time.monotonic() - began) < longest:
        while due < len(plan) and plan[due][0] <= now:
            cluster.signal(PARTIES[plan[due][1]], plan[due][2])
            due += 1
        time.sleep(_LOOK_SECONDS)


@contextmanager
def proxies(target: int, line: Line) -> Iterator[list[int]]:
    """One proxy per party, all in a process of their own; gives their ports. A direct line has none."""
    if line.is_direct:
        yield [target] * len(PARTIES)
        return
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=_carry, args=(target, line, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def _carry(target: int, line: Line, told: Connection[list[int], None]) -> None:
    made = [Proxy(target) for _ in PARTIES]
    for proxy in made:
        proxy.delay(line.round_trip / 2)
        proxy.slow(line.rate)
    told.send([proxy.port for proxy in made])
    signal.pause()
