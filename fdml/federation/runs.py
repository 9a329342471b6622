"""Runs from the side of a party's operator: start one, see what there is, and decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fdml.errors import MessageRefused, PeerTimeout, PrivacyBudgetSpent, Refusal, SettingsError
from fdml.federation.deciding import Decider, told
from fdml.federation.decision_log import Choice, Decision
from fdml.federation.party_home import PartyHome
from fdml.federation.run_folder import RunFolder
from fdml.federation.versions import with_versions
from fdml.protocol.run_messages import RunFacts, RunList, RunQuery
from fdml.protocol.signed_proposals import make_proposal, proposed_settings
from fdml.settings import RunSettings
from fdml.settings.difference import difference_text, differences
from fdml.settings.federation import read_run
from fdml.storage.failures import explained_failures

_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 3.0
"""How long the start of a run waits for the first answers of parties that stand by."""


@dataclass(frozen=True)
class StartedRun:
    """A run that was just proposed."""

    facts: RunFacts
    here: tuple[str, ...]
    """The parties that stand by."""


@explained_failures()
def start(
    home: PartyHome, run: Path | RunSettings, name: str | None = None, begin_with: str | None = None
) -> StartedRun:
    """Start a run at all parties: propose it at the server, where the others find it. This party accepts it.

    Parties that stand by have a few seconds to answer, so that what is told of the run is what they say to it.
    `name` and `begin_with` take the place of `name` and `from` in a run.toml. Its versions may be names of runs that
    have finished here.
    """
    changed = partial(with_versions, home.folder, name=name, begin_with=begin_with)
    settings = run if isinstance(run, RunSettings) else read_run(run, home.settings.federation, changed)
    if home.name not in home.federation.starters:
        raise SettingsError(
            f"party {home.name!r} has no right to start runs: [rights] in federation.toml names "
            f"{', '.join(home.federation.starters) or 'nobody'}"
        )
    RunFolder(home.folder, settings)  # another run of this name is refused before anybody hears of this one
    decider = Decider(home)
    with home.client() as client:
        known = client.runs(RunQuery())
        _check_name(settings, known)
        decider.note_ends(known.runs)
        with decider.in_turn():
            _accept(decider, settings, home.name)
        facts = client.propose(make_proposal(settings, home.name, home.endpoint.credentials))
        deadline = time.monotonic() + _ANSWER_SECONDS
        while _is_unanswered(facts, known.here) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 5)
            facts = client.run(facts.name) or facts
    return StartedRun(facts, known.here)


def _check_name(run: RunSettings, known: RunList) -> None:
    """Raise before anything is written if the server has another run of this name."""
    for facts in known.runs:
        if facts.name == run.name and (found := differences(run, proposed_settings(facts.proposal))):
            text = difference_text(found, "here", f"in run {run.name!r} of {facts.starter}")
            raise SettingsError(f"{text}; give it a new name")


def _accept(decider: Decider, run: RunSettings, party: str) -> None:
    """Write down that this party takes part in the run that it starts, or raise why it does not."""
    answer = decider.answer(run, party)
    if answer.outcome == "refuse":
        kind = PrivacyBudgetSpent if "." in answer.rule else SettingsError
        raise kind(f"run {run.name!r} is refused by {answer.rule}: {answer.reason}")
    last = decider.last_on(run)
    if last is None or last.choice == "waits":
        decider.record(run, party, "accepted", reason="fdml run")
    elif last.choice != "accepted":
        raise SettingsError(f"run {run.name!r} was {last.choice} here; give the run a new name")


def _is_unanswered(facts: RunFacts, here: Sequence[str]) -> bool:
    return facts.state == "waiting" and any(facts.decision_of(party) is None for party in here)


@explained_failures()
def listing(home: PartyHome) -> RunList:
    """All runs of the federation, and who stands by."""
    with home.client() as client:
        return client.runs(RunQuery())


@explained_failures()
def show(home: PartyHome, name: str) -> RunFacts:
    """One run."""
    with home.client() as client:
        found = client.run(name)
    if found is None:
        raise SettingsError(f"there is no run {name!r} at the {home.endpoint.called}; `fdml runs list` has all")
    return found


def looked_at(home: PartyHome, name: str) -> RunFacts:
    """One run for a person to decide on: raises where its starter has not signed the settings that the server shows."""
    facts = show(home, name)
    if facts.is_open:
        try:
            Decider(home).checked(facts)
        except MessageRefused as refused:
            raise MessageRefused(f"run {name!r} is not what the server says: {refused}", refused.refusal) from None
    return facts


@explained_failures()
def decide(home: PartyHome, name: str, choice: Choice, reason: str = "") -> RunFacts:
    """Accept, refuse or stop a run: written to the log first, then told to the server."""
    facts, decider = show(home, name), Decider(home)
    run = decider.checked(facts) if choice == "accepted" else proposed_settings(facts.proposal)
    if not facts.is_open:
        raise SettingsError(f"run {name!r} is {facts.state} already")
    decider.note_ends(listing(home).runs)
    with decider.in_turn():
        decision = _decided(decider, facts, run, choice, reason)
    with home.client() as client:
        return client.decide(told(decision))


def _decided(decider: Decider, facts: RunFacts, run: RunSettings, choice: Choice, reason: str) -> Decision:
    """Write down what a person says, or raise why that cannot be said."""
    name, last = facts.name, decider.last_on(run)
    if choice == "accepted":
        answer = decider.answer(run, facts.starter)
        if answer.outcome == "refuse":
            _check_approvable(answer.rule, answer.reason)
    if choice == "refused" and last is not None and last.choice == "accepted":
        raise SettingsError(f"run {name!r} was accepted here; `fdml runs stop {name}` ends it for all")
    rule = "" if last is None or choice == "accepted" else last.rule
    return decider.record(run, facts.starter, choice, rule, reason)


def wait_for(
    home: PartyHome, names: Sequence[str], *, seconds: float | None = None, on_change: Callable[[RunFacts], None]
) -> list[RunFacts]:
    """Wait until these runs are over; `on_change` is called with each whose state has changed."""
    began, seen = time.monotonic(), dict.fromkeys(names, "")
    with home.client(seconds=60.0) as client:
        while True:
            found = client.runs(RunQuery())
            runs = {each.name: each for each in found.runs if each.name in seen}
            for name, facts in runs.items():
                if facts.state != seen[name]:
                    seen[name] = facts.state
                    on_change(facts)
            if len(runs) == len(seen) and not any(each.is_open for each in runs.values()):
                return [runs[name] for name in names]
            if seconds is not None and time.monotonic() - began > seconds:
                missing = [name for name in names if name not in runs or runs[name].is_open]
                raise PeerTimeout(f"{', '.join(missing)} not over after {seconds:g} s; `fdml runs show NAME` says why")
            time.sleep(_POLL_SECONDS)


def waits_text(facts: RunFacts) -> str:
    """Whose decision a run waits for."""
    texts = []
    for name in proposed_settings(facts.proposal).parties:
        decision = facts.decision_of(name)
        if decision is None:
            texts.append(name)
        elif refusal := facts.refused_for(name):
            texts.append(f"{name}, which was refused: {refusal}")
        elif decision.choice == "waits":
            texts.append(f"a person at {name}" + (f" ({decision.rule})" if decision.rule else ""))
    return ", ".join(texts)


def _check_approvable(rule: str, reason: str) -> None:
    if rule.startswith("policy.") and not rule.startswith("policy.total"):
        return  # a person may allow what a rule does not
    raise MessageRefused(f"the run cannot be approved: {rule}: {reason}", Refusal.NOT_PERMITTED)
