"""Timing contenders against each other in one run, and the report of it.

The contenders take turns, round after round, so that whatever else the machine
does falls on all of them; a ratio is formed inside each round, and its spread
says how far it can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

from fdml.errors import SettingsError

Work = Callable[[], float]
"""Does a stretch of work and returns how many units it was."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Spread:
    """The median of one figure per round, and its extremes."""

    median: float
    min: float
    max: float


@dataclass(frozen=True)
class Timing:
    """Seconds per unit of one contender, one figure per round."""

    contender: str
    rounds: tuple[float, ...]

    @property
    def seconds(self) -> Spread:
        """Seconds per unit."""
        return _spread(self.rounds)

    def row(self, unit: str, per_second: float, **facts: Any) -> dict[str, Any]:
        """A line of a report in another unit of time, of which a second has `per_second`; `facts` are added to it."""
        figures = _spread([per_second * seconds for seconds in self.rounds])
        return {"contender": self.contender, **asdict(figures), "unit": unit, **facts}


def measure(contenders: Mapping[str, Work], rounds: int, *, warm_ups: int = 1, progress: Progress) -> dict[str, Timing]:
    """Let all contenders work in turn, `rounds` times after `warm_ups` turns that do not count."""
    if not contenders or rounds < 1:
        raise SettingsError(f"{len(contenders)} contenders in {rounds} rounds; measure at least one of each")
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(warm_ups + rounds):
        progress(f"round {turn - warm_ups + 1} of {rounds}" if turn >= warm_ups else "warm-up")
        for name, work in contenders.items():
            begin = perf_counter()
            units = work()
            spent = perf_counter() - begin
            if turn >= warm_ups:
                seconds[name].append(spent / units)
    return {name: Timing(name, tuple(figures)) for name, figures in seconds.items()}


def ratio(above: Timing, below: Timing) -> Spread:
    """How many times as long the first takes as the second: the median of the ratios of each round."""
    return _spread([a / b for a, b in zip(above.rounds, below.rounds, strict=True)])


def fastest(*timings: Timing) -> Timing:
    """The one with the smallest median."""
    return min(timings, key=lambda timing: timing.seconds.median)


def _spread(figures: Sequence[float]) -> Spread:
    return Spread(median(figures), min(figures), max(figures))


def spread(figures: Sequence[float]) -> dict[str, Any]:
    """The median and the extremes of one figure per round, as a report has them."""
    return asdict(_spread(figures))


def row(name: str, figures: Sequence[float], unit: str) -> dict[str, Any]:
    """A line of a report."""
    return {"contender": name, **spread(figures), "unit": unit}


@dataclass(frozen=True)
class Report:
    """What a benchmark found, with all that is needed to rate and repeat it."""

    name: str
    question: str
    results: list[dict[str, Any]]
    """One per contender: `contender`, `median`, `min`, `max`, `unit`, and facts of the benchmark's own."""
    ratios: dict[str, dict[str, Any]]
    """By name: `median`, `min`, `max`, and `target` (at least that) where there is one."""
    machine: dict[str, Any]
    commit: str

    def as_json(self) -> dict[str, Any]:
        """The same as values that `json.dump` takes."""
        return asdict(self)

    def merged(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """The same with the lines of an earlier report that this one has none of; every line has its own commit."""
        mine = [{**line, "commit": self.commit} for line in self.results]
        names = {line["contender"] for line in mine}
        kept = [{"commit": before["commit"], **line} for line in before["results"] if line["contender"] not in names]
        stays = {name: {"commit": before["commit"], **each} for name, each in before["ratios"].items()}
        ratios = stays | {name: {**each, "commit": self.commit} for name, each in self.ratios.items()}
        return {**self.as_json(), "results": kept + mine, "ratios": ratios}
