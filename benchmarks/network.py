"""How much slower does training get on a real network, and which settings suit it?

Seconds count from the moment the server has the labels, when all parties may
begin, to the end of the first epoch after which the held-out rows' AUC is good
enough, at the last party. In the second part the parties' processes are stopped
at random for a while.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.network_profiles import FAR, LOOPBACK, MIDDLE, NEAR, NetworkProfile
from benchmarks.process_runs import LONGEST, PARTIES, WIDTH, Pauses, ProcessBench, RunTrace, Variant
from fdml.errors import SettingsError

TOLERANCE = 0.002
"""How far below the loopback run's last AUC is good enough."""
TIMES = 3.0
"""The slowest line may take so many times as long as loopback."""
_LEAST_ROWS = 20_000
_PAUSED_EPOCHS = 4
_PAUSED_ROUNDS = 2

DEFAULT = Variant("16 batches per block (default)")
_LARGE = Variant("256 batches per block", "batches_per_block = 256")


def _ahead(batches: int, lookahead: int, bits: int = 64) -> Variant:
    return Variant(
        f"{batches} batches per block, lookahead {lookahead}, {bits} bits",
        f"batches_per_block = {batches}\nlookahead = {lookahead}\nvalue_bits = {bits}",
    )


SWEEP = {
    LOOPBACK: (_LARGE,),
    NEAR: (DEFAULT, _LARGE),
    MIDDLE: (DEFAULT, _LARGE, _ahead(256, 3)),
    FAR: (DEFAULT, _ahead(256, 3), _ahead(256, 3, 16), _ahead(256, 4, 16), _ahead(512, 3, 16)),
}
"""What is tried on which line, after the default on loopback, which says what must be reached. All at staleness 0."""
STALENESS = (0, 1, 4, 16)


@dataclass(frozen=True)
class NetworkRun:
    """A setting on a line, and the seconds it took to the AUC; None if it did not get there."""

    line: NetworkProfile
    setting: Variant
    seconds: float | None
    spent: float
    last_auc: float

    @classmethod
    def of(cls, line: NetworkProfile, setting: Variant, course: RunTrace, goal: float) -> NetworkRun:
        """What a run's course means."""
        epoch = course.epoch_of(goal)
        return cls(line, setting, None if epoch is None else course.seconds[epoch], course.spent, course.last_auc)


class Contest:
    """Settings tried on lines, all to the AUC that the default reaches on loopback.

    At staleness 0 a run ends the same whatever the line, so the epochs of a
    setting are evaluated in its first run only, and later ones need not wait for it.
    """

    def __init__(self, ground: ProcessBench, progress: Progress) -> None:
        self._ground = ground
        self._progress = progress
        first = ground.train(DEFAULT)
        self._known: dict[Variant, Mapping[int, float]] = {DEFAULT: first.aucs}
        self.goal = first.last_auc - TOLERANCE
        self.first = NetworkRun.of(LOOPBACK, DEFAULT, first, self.goal)

    def try_out(self, line: NetworkProfile, setting: Variant) -> NetworkRun:
        """One run, until it has reached the AUC."""
        self._progress(f"{line.name}, {setting.name}")
        course = self._ground.train(setting, line, goal=self.goal, known=self._known.get(setting))
        self._known.setdefault(setting, course.aucs)
        return NetworkRun.of(line, setting, course, self.goal)


def run(progress: Progress, rows: int = 1_000_000, rounds: int = 5) -> Report:
    """Try settings on lines, then the best against the slowest line once more, then staleness against pauses."""
    if rows < _LEAST_ROWS:
        raise SettingsError(f"{rows} rows are too few to judge anything by; take {_LEAST_ROWS} or more")
    of_machine, made_by = machine(), commit()
    with tempfile.TemporaryDirectory(prefix="fdml-network-") as folder:
        progress(f"{rows:,} rows of {len(PARTIES)} parties")
        contest = Contest(ProcessBench.make(Path(folder) / "all", rows), progress)
        tried = [contest.try_out(line, setting) for line, settings in SWEEP.items() for setting in settings]
        trials = [contest.first, *tried]
        ratios = _beside(contest, trials, rounds)
        results = [_row(trial, contest.goal) for trial in trials] + _paused(Path(folder), rows, progress)
    return Report("network", _question(rows, contest.goal, trials), results, ratios, of_machine, made_by)


def recommended(trials: Sequence[NetworkRun], line: NetworkProfile) -> Variant | None:
    """The fastest setting on a line that reaches the AUC; None if none does."""
    there = [(each.seconds, each.setting) for each in trials if each.line == line and each.seconds is not None]
    return min(there, key=lambda pair: pair[0], default=(0.0, None))[1]


def _beside(contest: Contest, trials: Sequence[NetworkRun], rounds: int) -> dict[str, dict[str, Any]]:
    """How many times as long the slowest line takes as loopback, each with what is best there, in turns."""
    here, there = recommended(trials, LOOPBACK), recommended(trials, FAR)
    if here is None or there is None:
        return {}
    pairs = [(contest.try_out(FAR, there).seconds, contest.try_out(LOOPBACK, here).seconds) for _ in range(rounds)]
    times = [(far or LONGEST) / near for far, near in pairs if near is not None]
    name = f"time to the AUC, {FAR.name} with {there.name} / loopback with {here.name}"
    return {name: spread(times) | {"at_most": TIMES}} if times else {}


def _row(trial: NetworkRun, goal: float) -> dict[str, Any]:
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
        ground, where = ProcessBench.make(folder / f"{count}", count), f"{count:,} rows, {kind}"
        progress(f"no pauses, {where}")
        calm = ground.train(Variant(kind, lines, epochs=_PAUSED_EPOCHS))
        goal = calm.last_auc - TOLERANCE
        results.append(_courses_row(f"no pauses, {where}, staleness 0", [calm], goal))
        for staleness in STALENESS:
            setting = Variant(kind, f"{lines}staleness = {staleness}", epochs=_PAUSED_EPOCHS)
            name = f"pauses, {where}, staleness {staleness}"
            progress(name)
            courses = [ground.train(setting, goal=goal, pauses=Pauses(seed)) for seed in range(_PAUSED_ROUNDS)]
            results.append(_courses_row(name, courses, goal))
    return results


def _courses_row(name: str, courses: Sequence[RunTrace], goal: float) -> dict[str, Any]:
    epochs = [course.epoch_of(goal) for course in courses]
    seconds = [
        course.spent if epoch is None else course.seconds[epoch] for course, epoch in zip(courses, epochs, strict=True)
    ]
    unit = "s and not reached" if None in epochs else "s to the AUC"
    facts = {"goal": goal, "epochs": epochs, "seconds_per_epoch": mean(course.per_epoch for course in courses)}
    return row(name, seconds, unit) | facts


def _question(rows: int, goal: float, trials: Sequence[NetworkRun]) -> str:
    best = {line: recommended(trials, line) for line in SWEEP}
    advice = "; ".join(f"{line.name}: {'none' if setting is None else setting.name}" for line, setting in best.items())
    return (
        f"How long does joint training take to a test AUC of {goal:.4f} (the default settings' on loopback, less "
        f"{TOLERANCE}) on slow lines, and with parties that pause? {len(PARTIES)} parties with {WIDTH} dense "
        f"features, {rows:,} rows, logistic regression; lines but loopback carry 100 Mbit/s in each direction. Seconds "
        f"from the labels' coming to the server, so their way to the other parties counts; a run is given up after "
        f"{LONGEST:g} s. Fastest settings that reach it: {advice}. Pauses: each party's process is stopped for 50 to "
        f"300 ms about three times in two seconds; the paper's literal settings are slow and get fewer rows."
    )
