"""A search for settings: many named runs over one alignment, and which of them is best by the held-out rows.

Every run is one like any other, with its folder, its bundle and its account in every party's ledger. One that has
finished is not run again; one that fails or is refused is noted, and the search goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from fdml.errors import SettingsError
from fdml.experiments.search_settings import Candidate, Search
from fdml.federation.run_folder import MODEL, RUNS, RunFolder, settings_in
from fdml.models.bundle import Bundle
from fdml.monitor.figures import LOSS, LOWER_IS_BETTER
from fdml.monitor.history import metric_of
from fdml.party.settings import PartySettings, with_model
from fdml.privacy.accounts import LedgerAccounts

State = Literal["finished", "failed", "refused", "stopped", "waiting"]


@dataclass(frozen=True)
class End:
    """How one run of a search has ended; a run that waits for a person may end later."""

    state: State
    reason: str = ""


@dataclass(frozen=True)
class SearchedRun:
    """One run of a search and what came of it."""

    candidate: Candidate
    end: End
    version: str = ""
    test_loss: float | None = None
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """Of the held-out rows."""

    def figure(self, name: str) -> float | None:
        """A figure to choose by; None where it is not known or no number."""
        found = self.test_loss if name == LOSS else self.figures.get(name)
        return found if found is not None and math.isfinite(found) else None


@dataclass(frozen=True)
class Spent:
    """What a search has released of a row of one party."""

    releases: int
    epsilon: float
    """Infinite where something left without noise."""
    delta: float


@dataclass(frozen=True)
class SearchResult:
    """All runs of a search, in their order."""

    name: str
    choose_by: str
    runs: tuple[SearchedRun, ...]
    spent: Mapping[str, Spent]
    """By party whose ledger is on this machine."""

    @property
    def best(self) -> SearchedRun | None:
        """The run with the best figure, the first of equal ones; None where no run has one."""
        known = [run for run in self.runs if run.end.state == "finished" and run.figure(self.choose_by) is not None]
        sign = 1.0 if self.choose_by in LOWER_IS_BETTER else -1.0
        return min(known, key=lambda run: sign * (run.figure(self.choose_by) or 0.0), default=None)


class Sides(Protocol):
    """How the runs of a search are carried out: by standing parties, or all on this machine."""

    homes: Mapping[str, Path]
    """The folders of the parties on this machine."""

    def settings(self, party: str) -> PartySettings:
        """What a party's party.toml says."""
        ...

    def carry_out(self, candidate: Candidate) -> End:
        """Start a run, or go on with it, and wait for its end."""
        ...

    def accounts(self, party: str) -> LedgerAccounts:
        """What all runs of a party have released."""
        ...


def run_search(
    search: Search,
    sides: Sides,
    on_run: Callable[[SearchedRun], None] = lambda _: None,
    on_start: Callable[[Candidate], None] = lambda _: None,
) -> SearchResult:
    """Carry out all runs that are not finished yet, one after the other; `on_run` is called with each in turn."""
    _check(search, sides)
    home = sides.homes[search.label_party]
    found = []
    for candidate in search.candidates:
        known = searched_run(home, candidate)
        if known is None:
            on_start(candidate)
            end = sides.carry_out(candidate)
            known = searched_run(home, candidate) if end.state == "finished" else None
            known = known or SearchedRun(candidate, end)
        found.append(known)
        on_run(known)
    first = search.candidates[0].run
    choose_by = search.settings.choose_by or metric_of(first.task, first.loss)
    _check_figure(choose_by, found)
    spent = {party: _spent(sides, party, [each.name for each in search.candidates]) for party in sides.homes}
    return SearchResult(search.settings.name, choose_by, tuple(found), spent)


def searched_run(home: Path, candidate: Candidate) -> SearchedRun | None:
    """What a finished run has left at the label party; None if it has not finished there."""
    folder = home / RUNS / candidate.name / MODEL
    if not folder.is_dir():
        return None
    card = Bundle.check(folder)
    loss = None if card.metrics is None else card.metrics.test_loss
    return SearchedRun(candidate, End("finished"), card.version, loss, card.figures or {})


def _check(search: Search, sides: Sides) -> None:
    """Raise before anything starts where a run could not work, or began with other settings."""
    if search.label_party not in sides.homes:
        here = ", ".join(sides.homes)
        raise SettingsError(
            f"the held-out figures are those of the label party {search.label_party!r}, and this is {here}; start the "
            f"search there"
        )
    for candidate in search.candidates:
        for party, changes in candidate.models.items():
            if party not in sides.homes:
                raise SettingsError(
                    f"search.models.{party} is not this party's to set: {party!r} has its model in its own party.toml; "
                    f"leave it out, or try it with --simulate where all parties are on one machine"
                )
            with_model(sides.settings(party), changes)
        for party, home in sides.homes.items():
            _check_folder(home, candidate, candidate.models.get(party, {}))


def _check_folder(home: Path, candidate: Candidate, model: Mapping[str, Any]) -> None:
    """Raise if a run of this name began with other settings: it was of another search, or tune.toml was changed."""
    try:
        folder = RunFolder(home, candidate.run)
        if settings_in(folder.path) is not None and folder.own_model() != model:
            raise SettingsError(f"models began with {folder.own_model()}")
    except SettingsError as error:
        raise SettingsError(
            f"a run {candidate.name!r} is there already, and it is not of this search: {error}; give the search a new "
            f"name, or put tune.toml and run.toml back as they were"
        ) from None


def _check_figure(name: str, runs: Sequence[SearchedRun]) -> None:
    known = dict.fromkeys([LOSS, *(figure for run in runs for figure in run.figures)])
    if len(known) > 1 and name not in known:
        raise SettingsError(f"choose_by is {name!r}, and the held-out figures are {', '.join(known)}; choose by one")


def _spent(sides: Sides, party: str, names: Sequence[str]) -> Spent:
    guard, book = sides.settings(party).guard, sides.accounts(party)
    own = {life: each for life, each in book.runs.items() if each.run in names}
    releases = sum(max(each.counts.releases, each.counts.held_out) for each in own.values())
    return Spent(releases, LedgerAccounts(own).spent(guard.delta, record_level=guard.training is not None), guard.delta)
