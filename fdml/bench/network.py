"""How much slower does training get on a real network, and which settings suit it?

Server and parties are processes on this machine; each party's line goes through
a proxy that delays it and limits its rate. Seconds count from the moment the
server has the labels, when all parties may begin, to the end of the first epoch
after which the held-out rows' AUC is good enough, at the last party. In the second
part the parties' processes are stopped at random for a while.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import numpy as np

from fdml.bench.cluster import Cluster, nothing, write_run
from fdml.bench.machine import commit, machine
from fdml.bench.measure import Progress, Report, row, spread
from fdml.bench.proxy import Proxy
from fdml.errors import FdmlError, SettingsError, WaitedTooLong
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
_LEAST_ROWS = 20_000
_LOOK_SECONDS = 0.01
_START_SECONDS = 120.0
"""How long a run may take to begin."""
_LONGEST = 90.0
"""Seconds of training after which a run is given up: an epoch is judged at the end of the next one."""
_PAUSED_EPOCHS = 4
_PAUSED_ROUNDS = 2


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
    lines: str = ""
    epochs: int = 3

    @property
    def text(self) -> str:
        """All of run.toml that follows the names."""
        return (
            f'[training]\nepochs = {self.epochs}\nlearning_rate = "auto"\n{self.lines}\n'
            f'[evaluation]\nholdout = {_HELD_OUT}\nwhen = "epoch"\n'
        )


DEFAULT = Setting("16 batches per block (default)")
_64, _256 = (Setting(f"{count} batches per block", f"batches_per_block = {count}") for count in (64, 256))
_AHEAD = Setting(f"{_256.name}, lookahead 3", f"{_256.lines}\nlookahead = 3")
_AHEAD_32, _AHEAD_16 = (
    Setting(f"{_AHEAD.name}, {bits} bits", f"{_AHEAD.lines}\nvalue_bits = {bits}") for bits in (32, 16)
)
_ALL = Setting("all batches in one block, lookahead 0", 'batches_per_block = "all"\nlookahead = 0', epochs=10)
_TEN = Setting("10 exchanges", "exchanges = 10", epochs=11)
SWEEP = {
    LOOPBACK: (_256, _AHEAD),
    LINES[1]: (DEFAULT, _256),
    LINES[2]: (DEFAULT, _64, _256, _AHEAD),
    FAR: (DEFAULT, _64, _256, _AHEAD, _AHEAD_32, _AHEAD_16, _ALL, _TEN),
}
"""What is tried on which line, after the default on loopback, which says what must be reached."""
STALENESS = (0, 1, 4, 16)


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
class Course:
    """How a run went: seconds since training could begin and test AUC, epoch by epoch."""

    aucs: Mapping[int, float]
    seconds: Mapping[int, float]
    """To the end of the epoch at the last party."""
    spent: float
    """Seconds until the run ended or was given up."""

    @property
    def last_auc(self) -> float:
        """Of the last epoch that was judged."""
        return self.aucs[max(self.aucs)] if self.aucs else 0.0

    @property
    def per_epoch(self) -> float:
        """Seconds of an epoch, on average."""
        return self.seconds[max(self.seconds)] / max(self.seconds) if self.seconds else self.spent

    def epoch_of(self, auc: float) -> int | None:
        """The first epoch that is good enough; None if none is."""
        return next((epoch for epoch in sorted(self.aucs) if self.aucs[epoch] >= auc), None)


@dataclass(frozen=True)
class Trial:
    """A setting on a line, and the seconds it took to the AUC; None if it did not get there."""

    line: Line
    setting: Setting
    seconds: float | None
    spent: float
    last_auc: float

    @classmethod
    def of(cls, line: Line, setting: Setting, course: Course, goal: float) -> Trial:
        """What a run's course means."""
        epoch = course.epoch_of(goal)
        return cls(line, setting, None if epoch is None else course.seconds[epoch], course.spent, course.last_auc)


def run(progress: Progress, rows: int = 1_000_000, rounds: int = 3) -> Report:
    """Try settings on lines, then the best against the slowest line once more, then staleness against pauses."""
    if rows < _LEAST_ROWS:
        raise SettingsError(f"{rows} rows are too few to judge anything by; take {_LEAST_ROWS} or more")
    of_machine, made_by = machine(), commit()
    with tempfile.TemporaryDirectory(prefix="fdml-network-") as folder:
        progress(f"{rows:,} rows of {len(PARTIES)} parties")
        ground = Ground.make(Path(folder) / "all", rows)
        first = ground.train(DEFAULT)
        goal = first.last_auc - TOLERANCE
        trials = [Trial.of(LOOPBACK, DEFAULT, first, goal)]
        for line, settings in SWEEP.items():
            trials += [_try(ground, setting, line, goal, progress) for setting in settings]
        results = [_row(trial, goal) for trial in trials]
        ratios = _beside(ground, trials, goal, rounds, progress)
        results += _paused(Path(folder), rows, progress)
    return Report("network", _question(rows, goal, trials), results, ratios, of_machine, made_by)


def recommended(trials: Sequence[Trial], line: Line) -> Setting | None:
    """The fastest setting on a line that reaches the AUC; None if none does."""
    there = [(each.seconds, each.setting) for each in trials if each.line == line and each.seconds is not None]
    return min(there, key=lambda pair: pair[0], default=(0.0, None))[1]


def _try(ground: Ground, setting: Setting, line: Line, goal: float, progress: Progress) -> Trial:
    progress(f"{line.name}, {setting.name}")
    course = ground.train(setting, line, goal=goal)
    return Trial.of(line, setting, course, goal)


def _beside(
    ground: Ground, trials: Sequence[Trial], goal: float, rounds: int, progress: Progress
) -> dict[str, dict[str, Any]]:
    """How many times as long the slowest line takes as loopback, each with what is best there, in turns."""
    here, there = recommended(trials, LOOPBACK), recommended(trials, FAR)
    if here is None or there is None:
        return {}
    pairs = [
        (_try(ground, there, FAR, goal, progress).seconds, _try(ground, here, LOOPBACK, goal, progress).seconds)
        for _ in range(rounds)
    ]
    times = [(far or _LONGEST) / near for far, near in pairs if near is not None]
    name = f"time to the AUC, {FAR.name} with {there.name} / loopback with {here.name}"
    return {name: spread(times) | {"at_most": TIMES}} if times else {}


def _row(trial: Trial, goal: float) -> dict[str, Any]:
    reached = trial.seconds is not None
    unit = "s to the AUC" if reached else "s and not reached"
    figures = row(f"{trial.line.name}, {trial.setting.name}", [trial.seconds or trial.spent], unit)
    return figures | {"reached": reached, "goal": goal, "last_auc": trial.last_auc}


def _paused(folder: Path, rows: int, progress: Progress) -> list[dict[str, Any]]:
    """Every staleness with parties that pause; with the paper's literal settings on fewer rows."""
    results = []
    kinds = {
        "16 batches per block": (rows // 5, ""),
        "one batch per block, lookahead 0": (rows // 20, "batches_per_block = 1\nlookahead = 0\n"),
    }
    for kind, (count, lines) in kinds.items():
        ground, where = Ground.make(folder / f"{count}", count), f"{count:,} rows, {kind}"
        progress(f"no pauses, {where}")
        calm = ground.train(Setting(kind, lines, epochs=_PAUSED_EPOCHS))
        goal = calm.last_auc - TOLERANCE
        results.append(_courses_row(f"no pauses, {where}, staleness 0", [calm], goal))
        for staleness in STALENESS:
            setting = Setting(kind, f"{lines}staleness = {staleness}", epochs=_PAUSED_EPOCHS)
            name = f"pauses, {where}, staleness {staleness}"
            progress(name)
            courses = [ground.train(setting, goal=goal, pauses=Pauses(seed)) for seed in range(_PAUSED_ROUNDS)]
            results.append(_courses_row(name, courses, goal))
    return results


def _courses_row(name: str, courses: Sequence[Course], goal: float) -> dict[str, Any]:
    epochs = [course.epoch_of(goal) for course in courses]
    seconds = [
        course.spent if epoch is None else course.seconds[epoch] for course, epoch in zip(courses, epochs, strict=True)
    ]
    unit = "s and not reached" if None in epochs else "s to the AUC"
    facts = {"goal": goal, "epochs": epochs, "seconds_per_epoch": mean(course.per_epoch for course in courses)}
    return row(name, seconds, unit) | facts


def _question(rows: int, goal: float, trials: Sequence[Trial]) -> str:
    best = {line: recommended(trials, line) for line in SWEEP}
    advice = "; ".join(f"{line.name}: {'none' if setting is None else setting.name}" for line, setting in best.items())
    return (
        f"How long does joint training take to a test AUC of {goal:.4f} (the default settings' on loopback, less "
        f"{TOLERANCE}) on slow lines, and with parties that pause? {len(PARTIES)} parties with {_WIDTH} dense "
        f"features, {rows:,} rows, logistic regression; lines but loopback carry 100 Mbit/s in each direction. Seconds "
        f"from the labels' coming to the server, so their way to the other parties counts; a run is given up after "
        f"{_LONGEST:g} s. Fastest settings that reach it: {advice}. Pauses: each party's process is stopped for 50 to "
        f"300 ms about three times in two seconds; the paper's literal settings are slow and get fewer rows."
    )


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
        serve(home / "run.toml", say=nothing)
        return

    def note(event: Event) -> None:
        if isinstance(event, EpochDone):
            with (home / name / "epochs").open("a") as file:
                file.write(f"{event.epoch} {time.monotonic()}\n")

    join(home / name / "party.toml", listener=note, say=nothing)


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
        score = X @ chance.normal(size=(X.shape[1], 1)).astype(np.float32)
        chances = 1.0 / (1.0 + np.exp(-1.5 * score[:, 0] / score.std()))
        labels = (chance.random(rows) < chances).astype(np.int64)
        parts = [np.ascontiguousarray(part) for part in np.split(X, len(PARTIES), axis=1)]
        write_run(home, "", parts, labels, [""] * len(PARTIES))
        return cls(home, rows)

    def train(
        self, setting: Setting, line: Line = LOOPBACK, *, goal: float = math.inf, pauses: Pauses | None = None
    ) -> Course:
        """One run from the start, until an AUC is known to be reached, or the end."""
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
                return self._attend(cluster, began, goal, [] if pauses is None else pauses.plan(_LONGEST))
            finally:
                cluster.stop()

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

    def _attend(
        self, cluster: _Clocked, began: float, goal: float, plan: Sequence[tuple[float, int, signal.Signals]]
    ) -> Course:
        """Wait until there is nothing more to learn; processes are stopped and woken as planned."""
        due = 0
        while cluster.running and (now := time.monotonic() - began) < _LONGEST:
            while due < len(plan) and plan[due][0] <= now:
                cluster.signal(PARTIES[plan[due][1]], plan[due][2])
                due += 1
            if self._course(began).epoch_of(goal) is not None:
                break
            time.sleep(_LOOK_SECONDS)
        return self._course(began)

    def _course(self, began: float) -> Course:
        path = self.home / "p0" / "history.json"
        try:
            history = json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):  # nothing judged yet, or just being written
            history = []
        ends = [_ends(self.home / name / "epochs") for name in PARTIES]
        done = set.intersection(*map(set, ends))
        seconds = {epoch: max(each[epoch] for each in ends) - began for epoch in done}
        aucs = {each["epoch"]: each["test_metric"] for each in history if each["epoch"] in done}
        return Course(aucs, seconds, time.monotonic() - began)


def _ends(path: Path) -> dict[int, float]:
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return {int(epoch): float(at) for epoch, at in map(str.split, lines)}


@contextmanager
def proxies(target: int, line: Line) -> Iterator[list[int]]:
    """One proxy per party, all in a process of their own; gives their ports. A direct line has none."""
    if line.is_direct:
        yield [target] * len(PARTIES)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fdml.bench.network"])
    ours, theirs = context.Pipe()
    process = context.Process(target=_carry, args=(target, line, theirs), daemon=True)
    process.start()
    theirs.close()
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
    with suppress(EOFError):  # who asked for them is gone
        told.recv()
