"""A ledger that outlives runs: what all runs of a party have released of its rows, and what is left of a total.

A run is counted by its most released rows, so its figures hold for every row: the training rows' releases (one per
exchange), the held-out rows' (one per evaluation), the uses of a row in noisy gradients. Rows of all runs of one
ledger are taken to be the same: what is spent is the sum over runs, whatever files they read. That is exact for a row
that was in all of them, and too much for any other, never too little.

Counts are absolute, only rise, and are durable before what they count leaves. So a release that is sent again after
a crash is found counted, and one that was never counted has never left. Without noise the first release costs
everything, so all that the run plans are counted with it: else every epoch would wait for the disk to count one more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fdml.errors import PrivacyBudgetSpent, SettingsError, StateCorrupt
from fdml.privacy.epsilon import gaussian_epsilon
from fdml.privacy.ledger import GradientMechanism, Mechanism
from fdml.storage.disk import Disk

ACCOUNTS = "accounts.json"
_LAYOUT = "fdml ledger 1"


@dataclass(frozen=True)
class Cost:
    """What releases add up to: mu^2 of Gaussian noise, and the epsilon of Laplace noise."""

    squared_mu: float = 0.0
    pure: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.squared_mu + other.squared_mu, self.pure + other.pure)

    def at_least(self, other: Cost) -> Cost:
        """Of a row that may have cost the one or the other."""
        return Cost(max(self.squared_mu, other.squared_mu), max(self.pure, other.pure))

    def epsilon(self, delta: float) -> float:
        """Infinite where something left without noise."""
        if math.isinf(self.squared_mu) or math.isinf(self.pure):
            return math.inf
        return self.pure + gaussian_epsilon(math.sqrt(self.squared_mu), delta)


NOTHING, EVERYTHING = Cost(), Cost(math.inf, math.inf)


@dataclass(frozen=True)
class Counts:
    """How often a run's most released rows were released and used."""

    releases: int = 0
    """Of a training row."""
    held_out: int = 0
    """Of a held-out row, by evaluations under the guard."""
    exact: int = 0
    """1 if held-out rows were released without noise, though training rows have it."""
    uses: int = 0
    """Of a training row in noisy gradients."""

    def at_least(self, other: Counts) -> Counts:
        """The larger of each."""
        return Counts(
            max(self.releases, other.releases),
            max(self.held_out, other.held_out),
            max(self.exact, other.exact),
            max(self.uses, other.uses),
        )


@dataclass(frozen=True)
class RunAccount:
    """What one run, from its alignment to its end, has released."""

    run: str
    """The run's name."""
    data: str
    """A hash of the files it read and of how it read them."""
    file: str
    """The name of the training file, for people."""
    mechanism: Mechanism
    gradients: GradientMechanism | None
    counts: Counts = field(default_factory=Counts)

    @property
    def releases(self) -> int:
        """Of its most released row, of training or held-out rows."""
        return max(self.counts.releases, self.counts.held_out)

    @property
    def direct(self) -> Cost:
        """By a row's own releases, of training or held-out rows, whichever is more."""
        return self._released(self.counts.releases).at_least(self._held_out())

    @property
    def record_level(self) -> Cost:
        """By all that a row can reach: everything, where training had no noise."""
        counts = self.counts
        if self.gradients is None:
            return EVERYTHING if counts != Counts() else NOTHING
        used = Cost(counts.uses * self.gradients.squared_mu) if counts.uses else NOTHING
        return (self._released(counts.releases) + used).at_least(self._held_out())

    def _held_out(self) -> Cost:
        return EVERYTHING if self.counts.exact else self._released(self.counts.held_out)

    def _released(self, times: int) -> Cost:
        if not times:
            return NOTHING
        return Cost(times * self.mechanism.squared_mu, times * self.mechanism.pure)


@dataclass(frozen=True)
class ShownLabels:
    """Labels that were shown in answer to one question; further runs that ask it show the same answers."""

    column: str
    epsilon: float | None
    """None where they were shown as they are."""
    classes: int
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class LedgerAccounts:
    """All accounts of a ledger, by the name of a run's life and of a question on labels."""

    runs: Mapping[str, RunAccount] = field(default_factory=dict)
    labels: Mapping[str, ShownLabels] = field(default_factory=dict)

    def spent(self, delta: float, *, record_level: bool) -> float:
        """What all runs have spent of a row that was in every one of them."""
        costs = (run.record_level if record_level else run.direct for run in self.runs.values())
        return sum(costs, NOTHING).epsilon(delta)

    @property
    def releases(self) -> int:
        """Of a row that was in every run."""
        return sum(run.releases for run in self.runs.values())

    def label_epsilons(self) -> dict[str, float]:
        """By label column, what its answers add up to; infinite where they were shown as they are."""
        found: dict[str, float] = {}
        for each in self.labels.values():
            found[each.column] = found.get(each.column, 0.0) + (math.inf if each.epsilon is None else each.epsilon)
        return found


class AccountFile:
    """The book of a ledger on disk. Processes that share a ledger change it in turns."""

    def __init__(self, disk: Disk, turn: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._disk = disk
        self._turn = turn

    def read(self) -> LedgerAccounts:
        """All accounts by now."""
        raw = self._disk.read(ACCOUNTS)
        if raw is None:
            return LedgerAccounts()
        try:
            known = json.loads(raw)
            if known["layout"] != _LAYOUT:
                raise ValueError(f"its layout is {known['layout']!r}")
            runs = {name: _run_account(each) for name, each in known["runs"].items()}
            labels = {name: _shown_labels(each) for name, each in known["labels"].items()}
        except (ValueError, TypeError, KeyError, SettingsError) as error:
            raise StateCorrupt(
                f"the ledger {ACCOUNTS!r} is damaged ({error}): what was spent is unknown; bring it back from a "
                f"backup, or move it away and take the whole budget of these rows as spent"
            ) from None
        return LedgerAccounts(runs, labels)

    def change(self, change: Callable[[LedgerAccounts], LedgerAccounts]) -> LedgerAccounts:
        """Replace the book; durable on return. What `change` raises leaves it as it was."""
        with self._turn():
            book = change(self.read())
            content = {
                "layout": _LAYOUT,
                "runs": {name: asdict(each) for name, each in book.runs.items()},
                "labels": {name: asdict(each) for name, each in book.labels.items()},
            }
            self._disk.replace(ACCOUNTS, (json.dumps(content, indent=1) + "\n").encode())
        return book

    def show_labels(self, question: str, shown: ShownLabels, run: str) -> None:
        """Count that labels are shown in answer to a question; again in another run costs nothing more."""

        def counted(book: LedgerAccounts) -> LedgerAccounts:
            before = book.labels.get(question, shown)
            runs = before.runs if run in before.runs else (*before.runs, run)
            return replace(book, labels={**book.labels, question: replace(before, runs=runs)})

        self.change(counted)


class BudgetedAccount:
    """One run's account in a ledger; refuses what would bring all runs together over a total."""

    def __init__(
        self,
        file: AccountFile,
        name: str,
        account: RunAccount,
        *,
        total: float | None,
        delta: float,
        most_releases: int | None = None,
    ) -> None:
        """`total` is an epsilon, `most_releases` the same in releases of a row."""
        self._file = file
        self._name = name
        self._account = account
        self._total = total
        self._delta = delta
        self._most_releases = most_releases
        self._known = Counts()
        """What is on disk at least."""
        self._planned = Counts()
        """What is counted with the first release: where that costs everything, as many as the run plans."""

    def check_plan(self, planned: Counts) -> None:
        """Raise if a run that has released nothing yet cannot be finished within the totals."""
        if self._account.mechanism.noise == "none" and self._account.gradients is None:
            self._planned = planned
        if self.has_released:
            return
        book = self._file.read()
        planned_book = self._with(book, planned)
        if self._total is not None and (after := self._spent(planned_book)) > self._total:
            raise SettingsError(
                f"this run would bring what all runs of this ledger spend of a row to epsilon {after:.4g} at delta "
                f"{self._delta:g}, over guard.total_epsilon {self._total:g}; {self._spent(book):.4g} is spent already. "
                f"Plan more noise or fewer exchanges (`fdml budget plan`), or raise the total; `fdml budget show` has "
                f"the accounts"
            )
        if self._most_releases is not None and planned_book.releases > self._most_releases:
            raise SettingsError(
                f"this run would bring the releases of a row in all runs of this ledger to {planned_book.releases}, "
                f"over policy.total_releases {self._most_releases}; {book.releases} were made already. Plan fewer "
                f"exchanges, or raise the total; `fdml budget show` has the accounts"
            )

    @property
    def has_released(self) -> bool:
        """Whether anything of this run has been counted by now."""
        known = self._file.read().runs.get(self._name)
        return known is not None and known.counts != Counts()

    def count(
        self, *, releases: int = 0, held_out: int = 0, exact: int = 0, uses: int = 0, has_left: bool = False
    ) -> None:
        """Count at least so much; durable on return. Raises and counts nothing if that would overspend a total.

        What has left already is counted in any case.
        """
        known, planned = self._known, self._planned
        if releases <= known.releases and held_out <= known.held_out and exact <= known.exact and uses <= known.uses:
            return  # nearly every release: all rows of an epoch have the same count
        if releases:
            releases = max(releases, planned.releases)
        if held_out:
            held_out = max(held_out, planned.held_out)
        wanted = known.at_least(Counts(releases, held_out, exact, uses))

        def raised(book: LedgerAccounts) -> LedgerAccounts:
            after = self._with(book, wanted)
            if not has_left:
                self._check(after)
            return after

        self._known = self._file.change(raised).runs[self._name].counts

    def _check(self, after: LedgerAccounts) -> None:
        """Raise if a total is overspent in this book."""
        if self._total is not None and self._spent(after) > self._total:
            raise PrivacyBudgetSpent(
                f"one more release would bring what all runs of this ledger have spent of a row over "
                f"guard.total_epsilon {self._total:g} at delta {self._delta:g}; stop here, or raise the total: "
                f"`fdml budget show` has the accounts"
            )
        if self._most_releases is not None and after.releases > self._most_releases:
            raise PrivacyBudgetSpent(
                f"this would bring the releases of a row in all runs of this ledger to {after.releases}, over "
                f"policy.total_releases {self._most_releases}; stop here, or raise the total: `fdml budget show` has "
                f"the accounts"
            )

    def _with(self, book: LedgerAccounts, counts: Counts) -> LedgerAccounts:
        before = book.runs.get(self._name, self._account)
        raised = replace(before, counts=before.counts.at_least(counts))
        return replace(book, runs={**book.runs, self._name: raised})

    def _spent(self, book: LedgerAccounts) -> float:
        return book.spent(self._delta, record_level=self._account.gradients is not None)


def _run_account(known: Mapping[str, Any]) -> RunAccount:
    gradients = known["gradients"]
    counts = Counts(**known["counts"])
    if any(type(count) is not int or count < 0 for count in asdict(counts).values()):
        raise ValueError(f"{counts} are no counts")
    return RunAccount(
        known["run"],
        known["data"],
        known["file"],
        Mechanism(**known["mechanism"]),
        None if gradients is None else GradientMechanism(**gradients),
        counts,
    )


def _shown_labels(known: Mapping[str, Any]) -> ShownLabels:
    return ShownLabels(**{**known, "runs": tuple(known["runs"])})
