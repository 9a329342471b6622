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
    def of(cls, line: NetworkProfile, setting: Variant, trace: RunTrace, goal: float) -> NetworkRun:
        """What a run's trace means."""
        epoch = trace.epoch_of(goal)
        return cls(line, setting, None if epoch is None else trace.seconds[epoch], trace.spent, trace.last_auc)


class Comparison:
    """Settings tried on lines, all to the AUC that the default reaches on loopback.

    At staleness 0 a run ends the same whatever the line, so the epochs of a
    setting are evaluated in its first run only, and later ones need not wait for it.
    """

    def __init__(self, bench: ProcessBench, progress: Progress) -> None:
        self._bench = bench
        self._progress = progress
        first = bench.train(DEFAULT)
        self._known: dict[Variant, Mapping[int, float]] = {DEFAULT: first.aucs}
        self.goal = first.last_auc - TOLERANCE
        self.first = NetworkRun.of(LOOPBACK, DEFAULT, first, self.goal)

    def train(self, line: NetworkProfile, setting: Variant) -> NetworkRun:
        """One run, until it has reached the AUC."""
        self._progress(f"{line.name}, {setting.name}")
        trace = self._bench.train(setting, line, goal=self.goal, known=self._known.get(setting))
        self._known.setdefault(setting, trace.aucs)
        return NetworkRun.of(line, setting, trace, self.goal)


def run(progress: Progress, rows: int = 1_000_000, rounds: int = 5) -> Report:
    """Try settings on lines, then the best against the slowest line once more, then staleness against pauses."""
    if rows < _LEAST_ROWS:
        raise SettingsError(f"{rows} rows are too few to say anything; take {_LEAST_ROWS} or more")
    of_machine, made_by = machine(), commit()
    with tempfile.TemporaryDirectory(prefix="fdml-network-") as folder:
        progress(f"{rows:,} rows of {len(PARTIES)} parties")
        comparison = Comparison(ProcessBench.make(Path(folder) / "all", rows), progress)
        tried = [comparison.train(line, setting) for line, settings in SWEEP.items() for setting in settings]
        runs = [comparison.first, *tried]
        ratios = _beside(comparison, runs, rounds)
        results = [_row(each, comparison.goal) for each in runs] + _paused(Path(folder), rows, progress)
    return Report("network", _question(rows, comparison.goal, runs), results, ratios, of_machine, made_by)


def recommended(runs: Sequence[NetworkRun], line: NetworkProfile) -> Variant | None:
    """The fastest setting on a line that reaches the AUC; None if none does."""
    there = [(each.seconds, each.setting) for each in runs if each.line == line and each.seconds is not None]
    return min(there, key=lambda pair: pair[0], default=(0.0, None))[1]


def _beside(comparison: Comparison, runs: Sequence[NetworkRun], rounds: int) -> dict[str, dict[str, Any]]:
    """How many times as long the slowest line takes as loopback, each with what is best there, in turns."""
    here, there = recommended(runs, LOOPBACK), recommended(runs, FAR)
    if here is None or there is None:
        return {}
    pairs = [(comparison.train(FAR, there).seconds, comparison.train(LOOPBACK, here).seconds) for _ in range(rounds)]
    times = [(far or LONGEST) / near for far, near in pairs if near is not None]
    name = f"time to the AUC, {FAR.name} with {there.name} / loopback with {here.name}"
    return {name: spread(times) | {"at_most": TIMES}} if times else {}


def _row(each: NetworkRun, goal: float) -> dict[str, Any]:
    reached = each.seconds is not None
    unit = "s to the AUC" if reached else "s and not reached"
    figures = row(f"{each.line.name}, {each.setting.name}", [each.seconds or each.spent], unit)
    return figures | {"reached": reached, "goal": goal, "last_auc": each.last_auc}


def _paused(folder: Path, rows: int, progress: Progress) -> list[dict[str, Any]]:
    """Every staleness with parties that pause; with the paper's literal settings on fewer rows."""
    results = []
    kinds = {
        "16 batches per block": (rows // 5, ""),
        "one batch per block, lookahead 0": (rows // 20, "batches_per_block = 1\nlookahead = 0\n"),
    }
    for kind, (count, lines) in kinds.items():
        bench, where = ProcessBench.make(folder / f"{count}", count), f"{count:,} rows, {kind}"
        progress(f"no pauses, {where}")
        calm = bench.train(Variant(kind, lines, epochs=_PAUSED_EPOCHS))
        goal = calm.last_auc - TOLERANCE
        results.append(_traces_row(f"no pauses, {where}, staleness 0", [calm], goal))
        for staleness in STALENESS:
            setting = Variant(kind, f"{lines}staleness = {staleness}", epochs=_PAUSED_EPOCHS)
            name = f"pauses, {where}, staleness {staleness}"
            progress(name)
            traces = [bench.train(setting, goal=goal, pauses=Pauses(seed)) for seed in range(_PAUSED_ROUNDS)]
            results.append(_traces_row(name, traces, goal))
    return results


def _traces_row(name: str, traces: Sequence[RunTrace], goal: float) -> dict[str, Any]:
    epochs = [trace.epoch_of(goal) for trace in traces]
    seconds = [
        trace.spent if epoch is None else trace.seconds[epoch] for trace, epoch in zip(traces, epochs, strict=True)
    ]
    unit = "s and not reached" if None in epochs else "s to the AUC"
    facts = {"goal": goal, "epochs": epochs, "seconds_per_epoch": mean(trace.per_epoch for trace in traces)}
    return row(name, seconds, unit) | facts


def _question(rows: int, goal: float, runs: Sequence[NetworkRun]) -> str:
    best = {line: recommended(runs, line) for line in SWEEP}
    advice = "; ".join(f"{line.name}: {'none' if setting is None else setting.name}" for line, setting in best.items())
    return (
        f"How long does joint training take to a test AUC of {goal:.4f} (the default settings' on loopback, less "
        f"{TOLERANCE}) on slow lines, and with parties that pause? {len(PARTIES)} parties with {WIDTH} dense "
        f"features, {rows:,} rows, logistic regression; lines but loopback carry 100 Mbit/s in each direction. Seconds "
        f"from the labels' coming to the server, so their way to the other parties counts; a run is given up after "
        f"{LONGEST:g} s. Fastest settings that reach it: {advice}. Pauses: each party's process is stopped for 50 to "
        f"300 ms about three times in two seconds; the paper's literal settings are slow and get fewer rows."
    )
