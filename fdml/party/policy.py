"""What a party lets others start without a person: `[policy]` of party.toml, and what it says of a proposed run.

A run within the policy is accepted. One outside waits for a person (or is refused, if the policy says so), and the
answer names the rule. One that would overspend a total is refused in any case: no person can approve what the ledger
would refuse.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from fdml.errors import SettingsError
from fdml.settings import RunSettings
from fdml.settings.choices import Task
from fdml.settings.file import Settings

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))? )?(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)")
_MINUTES = 24 * 60


class PolicySettings(Settings):
    """What runs a party takes part in without a person. A rule that is left out allows everything but searches."""

    accept: Literal["ask", "policy"] = "ask"
    """"ask" keeps every run waiting for a person, "policy" accepts those that the rules allow."""
    otherwise: Literal["ask", "refuse"] = "ask"
    """What becomes of a run that a rule does not allow: it waits for a person, or is refused."""
    starters: tuple[str, ...] | None = None
    """The parties whose runs are taken."""
    tasks: tuple[Task, ...] | None = None
    """What a run may predict."""
    labels: tuple[Literal["shared", "private"], ...] | None = None
    """How the run may treat labels."""
    servers: tuple[Literal["plain", "blind"], ...] | None = None
    """What the run's server may be."""
    models: tuple[str, ...] | None = None
    """The kinds of this party's own model that may be trained."""
    max_epsilon: PositiveFloat | None = None
    """The largest epsilon that one run may spend of a row of this party."""
    max_releases: PositiveInt | None = None
    """The most releases of a row of this party in one run."""
    total_releases: PositiveInt | None = None
    """The most releases of a row in all runs of the ledger together; `guard.total_epsilon` is the same in epsilon."""
    tuning: NonNegativeInt = 0
    """The most runs of one search for settings (`fdml tune`) that are taken."""
    total_label_epsilon: PositiveFloat | None = None
    """The largest epsilon that all runs together may show of a label of this party, where it is the label party."""
    max_rows: PositiveInt | None = None
    """The most rows that a run may train on."""
    at_once: PositiveInt = 2
    """How many runs this party works on at once; others wait for their turn, in the order of their start."""
    hours: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """When runs may begin, in this machine's time: "08:00-18:00", "mon-fri 22:00-06:00"."""

    promotion: bool = True
    """Whether a run may promote its version by a rule of its own."""
    askers: tuple[str, ...] | None = None
    """The parties that are answered when they ask for predictions; None answers all that run.toml lets ask."""
    answers_per_hour: PositiveInt | None = None
    """The most rows of which one asker is told within an hour."""
    answer_until: datetime.date | None = None
    """The last day on which questions for predictions are answered, in this machine's time."""

    @field_validator("hours")
    @classmethod
    def _known_hours(cls, hours: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for each in hours or ():
            Hours.read(each)
        return hours


@dataclass(frozen=True)
class Hours:
    """Some hours of some days; those that end the next morning belong to the day on which they begin."""

    days: frozenset[int]
    start: int
    """Minutes of the day."""
    end: int

    @classmethod
    def read(cls, text: str) -> Hours:
        """From "mon-fri 08:00-18:00", or without days for all of them."""
        found = _HOURS.fullmatch(text.strip().lower())
        if found is None:
            raise SettingsError(f"policy.hours has {text!r}; write it like '08:00-18:00' or 'mon-fri 22:00-06:00'")
        days = frozenset(range(7))
        if found["first"]:
            first, last = (_day(found[name] or found["first"], text) for name in ("first", "last"))
            days = frozenset((first + each) % 7 for each in range((last - first) % 7 + 1))
        return cls(days, _minutes(found["start"], text), _minutes(found["end"], text))

    def holds(self, when: datetime.datetime) -> bool:
        """Whether a moment is within."""
        minute, day = 60 * when.hour + when.minute, when.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        return (day in self.days and minute >= self.start) or ((day - 1) % 7 in self.days and minute < self.end)


@dataclass(frozen=True)
class Spending:
    """What a run as planned would release of a row of this party, and what all runs would come to with it."""

    releases: int = 0
    epsilon: float = math.inf
    """Infinite without noise."""
    total_releases: int = 0
    total_epsilon: float = math.inf
    label_epsilon: float = 0.0
    """Of a label of this party over all runs; infinite where labels are shown as they are."""


@dataclass(frozen=True)
class ProposedRun:
    """A run that somebody wants to start, as one party sees it."""

    run: RunSettings
    starter: str
    model: str
    """The kind of this party's own model."""
    spending: Spending = Spending()
    rows: int | None = None
    """How many rows it would train on; None while no alignment is known."""
    of_its_search: int = 0
    """How many other runs of the same search this party has accepted."""


@dataclass(frozen=True)
class Objection:
    """A rule that does not allow a run."""

    rule: str
    """The setting's name: "policy.max_epsilon"."""
    reason: str
    """For a person of this party: it may hold figures that the others need not know."""
    final: bool = False
    """Whether no person can approve it either."""


Outcome = Literal["accept", "ask", "refuse"]


@dataclass(frozen=True)
class PolicyAnswer:
    """What a policy says of a run, and which rule it is that says so."""

    outcome: Outcome
    rule: str
    reason: str


def answer_of(
    policy: PolicySettings, proposed: ProposedRun, now: datetime.datetime, total_epsilon: float | None = None
) -> PolicyAnswer:
    """What becomes of a proposed run; `total_epsilon` is the party's budget over all runs."""
    objections = list(objections_to(policy, proposed, now, total_epsilon))
    final = [each for each in objections if each.final]
    if final:
        return PolicyAnswer("refuse", final[0].rule, final[0].reason)
    if policy.accept == "ask":
        reason = "; ".join(each.reason for each in objections) or "every run waits for a person here"
        return PolicyAnswer("ask", objections[0].rule if objections else "policy.accept", reason)
    if objections:
        outcome: Outcome = "refuse" if policy.otherwise == "refuse" else "ask"
        return PolicyAnswer(outcome, objections[0].rule, "; ".join(each.reason for each in objections))
    return PolicyAnswer("accept", "policy.accept", "within the policy")


def objections_to(
    policy: PolicySettings, proposed: ProposedRun, now: datetime.datetime, total_epsilon: float | None = None
) -> Iterator[Objection]:
    """Every rule that does not allow the run."""
    run, spending = proposed.run, proposed.spending
    yield from _totals(policy, spending, total_epsilon)
    yield from _listed("starters", proposed.starter, policy.starters, "it was started by")
    yield from _listed("tasks", run.task, policy.tasks, "its task is")
    yield from _listed("labels", run.privacy.labels, policy.labels, "its labels are")
    yield from _listed("servers", run.privacy.server, policy.servers, "its server is")
    yield from _listed("models", proposed.model, policy.models, "this party's model is")
    yield from _size(policy, spending, proposed.rows)
    if run.promotion is not None and not policy.promotion:
        yield Objection("policy.promotion", "it has a rule to promote its version; policy.promotion is false")
    if run.search is not None and proposed.of_its_search >= policy.tuning:
        taken = f"of which {proposed.of_its_search} were accepted here"
        yield Objection(
            "policy.tuning", f"it is a run of search {run.search!r}, {taken}; policy.tuning is {policy.tuning}"
        )
    if policy.total_label_epsilon is not None and spending.label_epsilon > policy.total_label_epsilon:
        text = (
            f"it would bring what all runs show of a label to {_epsilon(spending.label_epsilon)}, over "
            f"policy.total_label_epsilon {policy.total_label_epsilon:g}"
        )
        yield Objection("policy.total_label_epsilon", text)
    if outside := hours_objection(policy, now):
        yield Objection("policy.hours", outside)


def hours_objection(policy: PolicySettings, now: datetime.datetime) -> str:
    """What the hours in which runs may begin have against this moment; empty if nothing."""
    if policy.hours is None or any(Hours.read(each).holds(now) for each in policy.hours):
        return ""
    return f"it is {now:%a %H:%M}; policy.hours is {', '.join(policy.hours)}"


def check_size(policy: PolicySettings, run: str, spending: Spending, rows: int) -> None:
    """Raise if a run that these rules have accepted is larger than they allow, now that its rows are found."""
    for each in _size(policy, spending, rows):
        raise SettingsError(
            f"run {run!r} was accepted by the policy, and is larger than was known then: {each.reason}; `fdml runs "
            f"approve {run}` lets it go on, `fdml runs stop {run}` ends it for all"
        )


def _size(policy: PolicySettings, spending: Spending, rows: int | None) -> Iterator[Objection]:
    if policy.max_epsilon is not None and spending.epsilon > policy.max_epsilon:
        text = f"it would spend {_epsilon(spending.epsilon)} of a row, over policy.max_epsilon {policy.max_epsilon:g}"
        yield Objection("policy.max_epsilon", text)
    if policy.max_releases is not None and spending.releases > policy.max_releases:
        text = f"it would release a row {spending.releases} times, over policy.max_releases {policy.max_releases}"
        yield Objection("policy.max_releases", text)
    if policy.max_rows is not None and (rows is None or rows > policy.max_rows):
        known = "a number of rows not known before the first alignment" if rows is None else f"{rows} rows"
        yield Objection("policy.max_rows", f"it would train on {known}; policy.max_rows is {policy.max_rows}")


def _totals(policy: PolicySettings, spending: Spending, total_epsilon: float | None) -> Iterator[Objection]:
    if total_epsilon is not None and spending.total_epsilon > total_epsilon:
        text = (
            f"it would bring what all runs spend of a row to {_epsilon(spending.total_epsilon)}, over "
            f"guard.total_epsilon {total_epsilon:g}"
        )
        yield Objection("guard.total_epsilon", text, final=True)
    if policy.total_releases is not None and spending.total_releases > policy.total_releases:
        text = (
            f"it would bring the releases of a row in all runs to {spending.total_releases}, over "
            f"policy.total_releases {policy.total_releases}"
        )
        yield Objection("policy.total_releases", text, final=True)


def _listed(rule: str, found: str, allowed: tuple[str, ...] | None, text: str) -> Iterator[Objection]:
    if allowed is not None and found not in allowed:
        yield Objection(f"policy.{rule}", f"{text} {found!r}; policy.{rule} allows {', '.join(allowed) or 'none'}")


def _epsilon(value: float) -> str:
    return "an epsilon without bound" if math.isinf(value) else f"epsilon {value:.4g}"


def _day(name: str, text: str) -> int:
    if name not in _DAYS:
        raise SettingsError(f"policy.hours has {text!r}; the days are {', '.join(_DAYS)}")
    return _DAYS.index(name)


def _minutes(clock: str, text: str) -> int:
    hours, minutes = map(int, clock.split(":"))
    if minutes > 59 or 60 * hours + minutes > _MINUTES:
        raise SettingsError(f"policy.hours has {text!r}; a day goes from 00:00 to 24:00")
    return 60 * hours + minutes
