"""Runs on the same data, one after another, of which it is known when each epoch ended and how good it was.

Server and parties are processes on this machine. Their lines may be slow, and
the parties' processes may be stopped at random for a while.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.cluster import Cluster, run_folder, server_state, write_run
from benchmarks.network_profiles import LOOPBACK, NetworkProfile, proxies
from benchmarks.ports import reserved_port
from fdml.errors import FdmlError, PeerTimeout
from fdml.events import EpochDone, Event
from fdml.federation.join import join
from fdml.federation.machine_limits import tune_party_process
from fdml.federation.party_folder import HISTORY
from fdml.federation.run_folder import RUNS
from fdml.federation.serve import serve
from fdml.monitor.listeners import ignore_events
from fdml.protocol.messages import Labels

PARTIES = ("p0", "p1", "p2")
WIDTH = 20
"""Features of each party."""
LONGEST = 90.0
"""Seconds of training after which a run is given up: an epoch is evaluated at the end of the next one."""
_HELD_OUT = 0.02
_LOOK_SECONDS = 0.01
_START_SECONDS = 120.0
"""How long a run may take to begin."""


@dataclass(frozen=True)
class Variant:
    """A way to train, as run.toml has it under [training]."""

    name: str
    lines: str = ""
    epochs: int = 3

    @property
    def text(self) -> str:
        """All of run.toml that follows the names."""
        return (
            f'[training]\nepochs = {self.epochs}\nbatch_size = 100\nlearning_rate = "auto"\n{self.lines}\n'
            f'[evaluation]\nholdout = {_HELD_OUT}\nevery = "epoch"\n'
        )


@dataclass(frozen=True)
class Pauses:
    """When the parties' processes are stopped: each for itself, for 50 to 300 ms, about three times in two seconds."""

    seed: int
    gap: float = 0.5
    """Seconds from one pause to the next, on average."""
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
class RunTrace:
    """How a run went: seconds since training could begin and test AUC, epoch by epoch."""

    aucs: Mapping[int, float]
    seconds: Mapping[int, float]
    """To the end of the epoch at the last party."""
    spent: float
    """Seconds until the run ended or was given up."""

    @property
    def last_auc(self) -> float:
        """Of the last epoch that was evaluated."""
        return self.aucs[max(self.aucs)] if self.aucs else 0.0

    @property
    def per_epoch(self) -> float:
        """Seconds of an epoch, on average."""
        return self.seconds[max(self.seconds)] / max(self.seconds) if self.seconds else self.spent

    def epoch_of(self, auc: float) -> int | None:
        """The first epoch that is good enough; None if none is."""
        return next((epoch for epoch in sorted(self.aucs) if self.aucs[epoch] >= auc), None)


def _run_side_timed(home: Path, name: str, address: str) -> None:
    """Be the server, or a party that writes down when each of its epochs ended; party.toml says how to reach it."""
    if name == "server":
        serve(home / "federation.toml", home / "run.toml", listen=address, on_event=ignore_events)
        return

    def note(event: Event) -> None:
        if isinstance(event, EpochDone):
            with (home / name / "epochs").open("a") as file:
                file.write(f"{event.epoch} {time.monotonic()}\n")

    tune_party_process()
    join(home / name / "party.toml", on_event=note)


@dataclass(frozen=True)
class ProcessBench:
    """A folder with the data of all parties, in which one run after another is made."""

    home: Path
    rows: int

    @classmethod
    def make(cls, home: Path, rows: int) -> ProcessBench:
        """Draw features that are alike across the parties, and labels that they predict in part."""
        chance = np.random.default_rng(0)
        X = chance.normal(size=(rows, WIDTH * len(PARTIES))).astype(np.float32)
        X += 0.5 * chance.normal(size=(rows, 1)).astype(np.float32)
        score = X @ chance.normal(size=(X.shape[1], 1)).astype(np.float32)
        chances = 1.0 / (1.0 + np.exp(-1.5 * score[:, 0] / score.std()))
        labels = (chance.random(rows) < chances).astype(np.int64)
        parts = [np.ascontiguousarray(part) for part in np.split(X, len(PARTIES), axis=1)]
        write_run(home, "", parts, labels, [""] * len(PARTIES))
        return cls(home, rows)

    def train(
        self,
        setting: Variant,
        line: NetworkProfile = LOOPBACK,
        *,
        goal: float = math.inf,
        known: Mapping[int, float] | None = None,
        pauses: Pauses | None = None,
    ) -> RunTrace:
        """One run from the start, until an AUC is known to be reached, or the end.

        `known` are AUCs by epoch of an earlier run that this one must repeat: they need not be waited for.
        """
        self._clear()
        with reserved_port() as target, proxies(target, line, len(PARTIES)) as ports:
            self._write(setting, ports)
            cluster = Cluster(self.home, target, live=_run_side_timed)
            try:
                for name in ("server", *PARTIES):
                    cluster.start(name)
                began = self._await_labels(cluster)
                look = partial(self._trace, began, known or {})
                return _attend(cluster, look, goal, [] if pauses is None else pauses.plan(LONGEST))
            finally:
                cluster.stop()

    def _clear(self) -> None:
        for name in ("server", *PARTIES):
            shutil.rmtree(self.home / name / RUNS, ignore_errors=True)
            (self.home / name / "epochs").unlink(missing_ok=True)

    def _write(self, setting: Variant, ports: Sequence[int]) -> None:
        (self.home / "run.toml").write_text(f'name = "first"\nlabel_party = "p0"\n{setting.text}')
        for name, port in zip(PARTIES, ports, strict=True):
            (self.home / name / "party.toml").write_text(
                f'party = "{name}"\nfederation = "../federation.toml"\nserver = "127.0.0.1:{port}"\n'
                f'[align]\nmax_rows = {10**9}\n[data]\npath = "data.npz"\n'
            )

    def _await_labels(self, cluster: Cluster) -> float:
        """Wait until the server has logged the labels; gives the time."""
        log, deadline = server_state(self.home) / "journal", time.monotonic() + _START_SECONDS
        while not log.exists() or log.stat().st_size < Labels.sealed_size("binary", 2, self.rows):
            if time.monotonic() > deadline:
                raise PeerTimeout(f"the run in {self.home} did not begin within {_START_SECONDS:g} s")
            if not cluster.is_running:
                raise FdmlError(f"the run in {self.home} ended before it began")
            time.sleep(_LOOK_SECONDS)
        return time.monotonic()

    def _trace(self, began: float, known: Mapping[int, float]) -> RunTrace:
        path = run_folder(self.home, "p0") / HISTORY
        try:
            history = json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):  # nothing evaluated yet, or just being written
            history = []
        ends = [_ends(self.home / name / "epochs") for name in PARTIES]
        done = set.intersection(*map(set, ends))
        seconds = {epoch: max(each[epoch] for each in ends) - began for epoch in done}
        evaluated = {**known, **{each["epoch"]: each["test_metric"] for each in history}}
        aucs = {epoch: auc for epoch, auc in evaluated.items() if epoch in done}
        return RunTrace(aucs, seconds, time.monotonic() - began)


def _attend(
    cluster: Cluster, look: Callable[[], RunTrace], goal: float, plan: Sequence[tuple[float, int, signal.Signals]]
) -> RunTrace:
    """Wait until there is nothing more to learn; processes are stopped and woken as planned."""
    due, trace = 0, look()
    while cluster.is_running and trace.spent < LONGEST and trace.epoch_of(goal) is None:
        while due < len(plan) and plan[due][0] <= trace.spent:
            cluster.signal(PARTIES[plan[due][1]], plan[due][2])
            due += 1
        time.sleep(_LOOK_SECONDS)
        trace = look()
    return look()


def _ends(path: Path) -> dict[int, float]:
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return {int(epoch): float(at) for epoch, at in map(str.split, lines)}
