"""The versions of a model that a party holds, and which of them is promoted: the one to predict with.

A version is named by a hash that the bundles of all parties of one run share. `promoted.json` in a party's folder
lists every promotion there was, the last one counts. Nothing is overwritten: to roll back is to promote the one before.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from fdml.errors import DataError, SettingsError
from fdml.federation.run_folder import MODEL, RUNS, run_names, settings_in
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard
from fdml.party.settings import PartySettings
from fdml.privacy.ledger import RECORD_LEVEL
from fdml.settings import RunSettings
from fdml.settings.names import is_version
from fdml.settings.versions import check_same_parties
from fdml.storage.atomic import write_file
from fdml.storage.facts import damaged
from fdml.storage.lock import shared_turns

PROMOTED = "promoted"
"""In the place of a version: the one that is promoted."""
_FILE = "promoted.json"
_LAYOUT = "fdml promotions 1"
_TURN = "decisions/promoting"
"""Where the lock is of the process that promotes."""


@dataclass(frozen=True)
class Promotion:
    """One version that was promoted."""

    version: str
    run: str
    """The name of the run that made it."""
    by: Literal["rule", "person"]
    reason: str
    time: str
    """ISO 8601, UTC."""


class Promotions:
    """All promotions of the party in this folder."""

    def __init__(self, home: Path) -> None:
        self._path = home / _FILE

    def all(self) -> tuple[Promotion, ...]:
        """In their order."""
        try:
            known = json.loads(self._path.read_bytes())
            if known["layout"] != _LAYOUT:
                raise ValueError(f"its layout is {known['layout']!r}")
            return tuple(Promotion(**each) for each in known["promotions"])
        except FileNotFoundError:
            return ()
        except (ValueError, TypeError, KeyError) as error:
            raise damaged(str(self._path), error) from None

    @property
    def current(self) -> Promotion | None:
        """The one that counts; None before the first."""
        return next(reversed(self.all()), None)

    def promote(self, version: str, run: str, by: Literal["rule", "person"], reason: str = "") -> Promotion:
        """Let a version be the promoted one; durable on return. One that is already is left as it is.

        A rule promotes a run once: a process that is started again does not take back what came since.
        """
        with shared_turns(self._path.parent / _TURN):
            known = self.all()
            if known and known[-1].version == version:
                return known[-1]
            before = [each for each in known if (each.version, each.run, each.by) == (version, run, "rule")]
            if by == "rule" and before:
                return before[-1]
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            added = Promotion(version, run, by, reason, now)
            content = {"layout": _LAYOUT, "promotions": [asdict(each) for each in (*known, added)]}
            write_file(self._path, (json.dumps(content, indent=1) + "\n").encode())
            return added


def held_versions(home: Path) -> dict[str, BundleCard]:
    """By run that has finished in a party's folder, the card of its bundle, in the order of their end."""
    finished = [name for name in run_names(home) if (home / RUNS / name / MODEL).is_dir()]
    cards = {name: Bundle.check(home / RUNS / name / MODEL) for name in finished}
    return dict(sorted(cards.items(), key=lambda each: each[1].created))


def run_of_version(home: Path, party: str, version: str) -> str:
    """The run whose bundle has this version; raises where the party does not hold it."""
    found = [name for name, card in held_versions(home).items() if card.version == version]
    if not found:
        raise SettingsError(
            f"party {party!r} does not hold version {version}; `fdml runs versions` lists those that it does, "
            f"and a party that was not in it is named in new_parties"
        )
    return found[-1]


def version_named(home: Path, setting: str, text: str) -> str:
    """A version by its own name, by that of a run that has finished here, or the promoted one."""
    if is_version(text):
        return text
    if text == PROMOTED:
        current = Promotions(home).current
        if current is None:
            raise SettingsError(f"{setting} is {text!r}, and nothing is promoted: `fdml runs promote NAME` does it")
        return current.version
    try:
        return Bundle.check(home / RUNS / text / MODEL).version
    except DataError:
        known = ", ".join(held_versions(home)) or "none"
        raise SettingsError(
            f"{setting} is {text!r}, which is no version and no run that has finished here; finished: {known}"
        ) from None


def with_versions(
    home: Path, values: Mapping[str, Any], *, name: str | None = None, begin_with: str | None = None
) -> dict[str, Any]:
    """A run.toml with versions in the place of the names of runs, and of "promoted".

    A run that has begun here keeps those that it began with, so that the same command goes on with it.
    `name` and `begin_with` take the place of what run.toml says of `name` and `from`.
    """
    given = {"name": name, "from": begin_with}
    values = {**values, **{key: text for key, text in given.items() if text is not None}}
    began = settings_in(home / RUNS / str(values.get("name", "run")))
    evaluation = dict(values.get("evaluation", {}))
    found = {**values, **({"evaluation": evaluation} if evaluation else {})}
    places: tuple[tuple[dict[str, Any], str, str, str | None], ...] = (
        (found, "from", "from", None if began is None else began.from_version),
        (evaluation, "against", "evaluation.against", None if began is None else began.evaluation.against),
    )
    for table, key, setting, before in places:
        text = table.get(key)
        if isinstance(text, str) and not is_version(text):
            table[key] = before or version_named(home, setting, text)
    return found


def check_warm_start(party: PartySettings, run: RunSettings) -> None:
    """Raise where a party's promises do not allow to begin with an earlier model; a new party begins with none."""
    begins = run.from_version is not None and party.party not in run.new_parties
    if begins and party.guard.training is not None:
        raise SettingsError(
            "[guard.training] counts what this run's own training tells of a row, and a model to begin with (`from`) "
            "would bring what earlier ones have learned; leave one of them out"
        )


def check_compared(party: PartySettings, card: BundleCard) -> None:
    """Raise where a party has noise in training and would be compared with a model of its own that had none.

    That model's predictions of held-out rows tell of the rows that it has learned, and no noise has covered these.
    """
    covered = card.privacy is not None and all(each.scope == RECORD_LEVEL for each in card.privacy)
    if party.guard.training is not None and not covered:
        raise SettingsError(
            f"[guard.training] must cover all that is shown of a row, and version {card.version} was trained without "
            f"it; compare with one that had it, or leave evaluation.against out"
        )


def earlier_run(home: Path, party: str, run: RunSettings, version: str) -> str | None:
    """The run here whose bundle has a version that `run` begins or is compared with; None where the party is new to it.

    Raises where the party should hold the version and does not, or where other parties have trained it.
    """
    if party in run.new_parties:
        if any(card.version == version for card in held_versions(home).values()):
            raise SettingsError(f"new_parties names {party!r}, which is a party of version {version}; take it out")
        return None
    name = run_of_version(home, party, version)
    trained = Bundle.check(home / RUNS / name / MODEL).settings.run["parties"]
    check_same_parties(version, trained, run.parties, run.new_parties)
    return name


def why_not_here(home: Path, party: PartySettings, run: RunSettings) -> str:
    """Why a party cannot take part in a run that goes on from or is compared with a version; empty if it can."""
    try:
        check_warm_start(party, run)
        for version in {run.from_version, run.compared_version} - {None}:
            name = earlier_run(home, party.party, run, str(version))
            if name is not None:
                check_compared(party, Bundle.check(home / RUNS / name / MODEL))
    except (SettingsError, DataError) as error:
        return str(error)
    return ""


def promotion_text(run: RunSettings) -> str:
    """The rule of a run, in words."""
    rule = run.promotion
    if rule is None or run.compared_version is None:
        return ""
    metric = rule.metric or "the task's metric"
    return f"{metric} at least {rule.at_least:g} better than version {run.compared_version[:8]} on the same rows"
