"""tune.toml: which settings of a run are searched, and the runs that come of it.

The runs follow from the file alone, in their order, names and settings. So a search that was stopped goes on with the
runs that it lacks, and the first runs of a random search stay the same when it is given more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from fdml.errors import SettingsError
from fdml.settings import RunSettings
from fdml.settings.federation import FEDERATION_FILE, RUN_FILE, FederationSettings, read_federation
from fdml.settings.file import Settings, read_settings, read_table
from fdml.settings.names import check_name

MOST_RUNS = 1000
_SEARCHED = ("loss", "training", "evaluation", "privacy")
"""Of run.toml: settings that a search may change."""
_SAME_ROWS = ("training.seed", "evaluation.holdout")
"""Settings that choose the held-out rows, by which runs are compared."""
_DIGITS = 4
"""Significant digits of a number that is drawn."""
_TRIES = 100
"""For each run, to draw settings that no run before it has."""


class Range(Settings):
    """Numbers from `low` to `high`, both included; whole numbers if both are."""

    low: float
    """The smallest."""
    high: float
    """The largest."""
    scale: Literal["linear", "log"] = "linear"
    """Whether equal steps or equal ratios are equally likely."""
    steps: Annotated[int, Field(ge=2)] | None = None
    """How many of them a grid has."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low >= self.high:
            raise SettingsError(f"a range from {self.low:g} to {self.high:g} is empty; let low be below high")
        if self.scale == "log" and self.low <= 0:
            raise SettingsError(f'scale = "log" takes numbers above 0, and low is {self.low:g}; raise it')
        return self

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are whole."""
        return self.low.is_integer() and self.high.is_integer() and self.high > 1

    def at(self, share: float) -> float | int:
        """The number at a share of the way from low to high."""
        if self.scale == "log":
            found = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            found = self.low + share * (self.high - self.low)
        found = min(max(float(f"{found:.{_DIGITS}g}"), self.low), self.high)
        return round(found) if self.is_whole else found

    def grid(self) -> list[float | int]:
        """Its numbers in a grid."""
        if self.steps is None:
            raise SettingsError("a range in a grid needs `steps`, how many numbers to try")
        return list(dict.fromkeys(self.at(number / (self.steps - 1)) for number in range(self.steps)))


Values = list[Any] | Range


class SearchSettings(Settings):
    """tune.toml."""

    name: str
    """The search's name; its runs are called NAME-1, NAME-2, ..."""
    run: Path = Path(RUN_FILE)
    """The run.toml with all other settings; from the folder of tune.toml."""
    federation: Path | None = None
    """The federation.toml; None takes the one beside the run.toml."""
    method: Literal["grid", "random"] = "grid"
    """Every combination of values, or `runs` of them that are drawn."""
    runs: PositiveInt | None = None
    """How many runs a random search has; in a grid, the most that it may have."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 7
    """Of a random search."""
    choose_by: str | None = None
    """"test_loss", or a figure of the held-out rows ("auc", "brier"); None is the task's own."""
    run_seconds: PositiveFloat | None = None
    """Between parties: a run that is not over after so long is stopped, and counts as failed."""
    search: dict[str, Any]
    """By setting: a list of values, or a range."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_name("search name", self.name)
        if self.method == "random" and self.runs is None:
            raise SettingsError('method = "random" needs `runs`, how many to draw')
        if self.runs is not None and self.runs > MOST_RUNS:
            raise SettingsError(f"runs = {self.runs} is over {MOST_RUNS}; search in parts, each with a name of its own")
        if not self.spaces:
            raise SettingsError("[search] is empty; name a setting with its values, training.epochs = [5, 20]")
        return self

    @property
    def spaces(self) -> dict[str, Values]:
        """By setting, "training.epochs", the values to search."""
        return dict(_spaces("", self.search))


@dataclass(frozen=True)
class Candidate:
    """One run of a search."""

    run: RunSettings
    changes: Mapping[str, Any]
    """By searched setting, this run's value."""
    values: Mapping[str, Any]
    """The run.toml that it would have, without its name and search."""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By party, the settings of its model that this run has in place of its party.toml's."""

    @property
    def name(self) -> str:
        """The run's."""
        return self.run.name

    @property
    def text(self) -> str:
        """What it tries, in a line."""
        return ", ".join(f"{name} = {value}" for name, value in self.changes.items())


@dataclass(frozen=True)
class Search:
    """A search and all runs that it has."""

    settings: SearchSettings
    federation: FederationSettings
    federation_path: Path
    candidates: tuple[Candidate, ...]

    @property
    def label_party(self) -> str:
        """Who has the held-out figures of all its runs."""
        return self.candidates[0].run.label_party


def read_search(path: Path) -> Search:
    """Read and check a tune.toml, and all runs that it means; nothing is started."""
    settings = read_settings(path, SearchSettings, other=("label_party", "this is a run.toml; give a tune.toml"))
    run = path.parent / settings.run
    federation = run.parent / FEDERATION_FILE if settings.federation is None else path.parent / settings.federation
    who, base = read_federation(federation), read_table(run)
    chosen = _grid(settings) if settings.method == "grid" else _random(settings)
    candidates = tuple(_candidate(settings, who, base, number, changes) for number, changes in enumerate(chosen, 1))
    return Search(settings, who, federation, candidates)


def _spaces(place: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Values]]:
    for key, value in table.items():
        name = f"{place}{key}"
        if isinstance(value, Mapping) and {"low", "high"} & set(value):
            yield _allowed(name), Range(**value)
        elif isinstance(value, Mapping):
            yield from _spaces(f"{name}.", value)
        elif isinstance(value, list) and value:
            yield _allowed(name), value
        else:
            raise SettingsError(f"search.{name} is {value!r}; give a list of values, or a range {{low = 1, high = 9}}")


def _allowed(name: str) -> str:
    first, *rest = name.split(".")
    if name in _SAME_ROWS:
        raise SettingsError(f"search.{name} would test every run on other rows; set it in run.toml")
    if (first == "models" and len(rest) == 2) or (first in _SEARCHED and bool(rest) == (first != "loss")):
        return name
    raise SettingsError(
        f"search.{name} cannot be searched: it takes settings like training.epochs ({', '.join(_SEARCHED)}), and "
        f"models.PARTY.l2 for a party's own model"
    )


def _grid(settings: SearchSettings) -> Iterator[dict[str, Any]]:
    """All combinations; the first setting changes slowest."""
    values = {name: each.grid() if isinstance(each, Range) else each for name, each in settings.spaces.items()}
    count = math.prod(len(each) for each in values.values())
    most = settings.runs or MOST_RUNS
    if count > most:
        raise SettingsError(f'the grid has {count} runs, over {most}; search fewer values, or method = "random"')
    for chosen in itertools.product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def _random(settings: SearchSettings) -> Iterator[dict[str, Any]]:
    """As many different ones as wanted, drawn one after the other."""
    draw = np.random.Generator(np.random.PCG64(settings.seed)).random
    wanted, seen = settings.runs or 0, list[dict[str, Any]]()
    for _ in range(wanted * _TRIES):
        drawn = {name: _drawn(each, float(draw())) for name, each in settings.spaces.items()}
        if drawn not in seen:
            seen.append(drawn)
            yield drawn
        if len(seen) == wanted:
            return
    raise SettingsError(f'there are hardly {wanted} different settings to draw; lower runs, or use method = "grid"')


def _drawn(values: Values, share: float) -> Any:
    return values.at(share) if isinstance(values, Range) else values[int(share * len(values))]


def _candidate(
    settings: SearchSettings,
    federation: FederationSettings,
    base: Mapping[str, Any],
    number: int,
    changes: Mapping[str, Any],
) -> Candidate:
    values = {name: value for name, value in base.items() if name not in ("name", "search")}
    models: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        first, *rest = name.split(".")
        if first == "models":
            if rest[0] not in federation.parties:
                raise SettingsError(f"search.{name}: {rest[0]!r} is none of {', '.join(federation.parties)}")
            models.setdefault(rest[0], {})[rest[1]] = value
        elif rest:
            values[first] = _with(values.get(first, {}), rest, value)
        else:
            values[first] = value
    name = f"{settings.name}-{number}"
    try:
        run = federation.run(**values, name=name, search=settings.name)
    except SettingsError as error:
        tried = ", ".join(f"{setting} = {value}" for setting, value in changes.items())
        raise SettingsError(f"run {name!r} of the search ({tried}): {error}") from None
    return Candidate(run, changes, values, models)


def _with(table: Mapping[str, Any], place: list[str], value: Any) -> dict[str, Any]:
    """A table with one setting changed, however deep."""
    first, *rest = place
    return {**table, first: _with(table.get(first, {}), rest, value) if rest else value}
