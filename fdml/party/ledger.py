"""A party's part in its ledger: what this run will release, counted with all other runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from fdml.data.label_encoding import LabelEncoding
from fdml.errors import SettingsError
from fdml.party.label_flips import LabelFlips
from fdml.party.policy import PolicySettings, Spending, check_size
from fdml.privacy.accounts import AccountFile, BudgetedAccount, Counts, RunAccount, ShownLabels
from fdml.privacy.build_guard import gradients_of, mechanism_of, row_uses
from fdml.privacy.calibrate import releases_within
from fdml.privacy.ledger import Mechanism
from fdml.privacy.noise import NoiseKey
from fdml.protocol.schedule import Schedule
from fdml.settings import GuardSettings, RunSettings, evaluation_schedule


def planned_account(
    run: RunSettings, guard: GuardSettings, schedule: Schedule, *, data: str = "", file: str = ""
) -> RunAccount:
    """What a run will have released once it is over: never less than it will, and more if it ends early."""
    mechanism = mechanism_of(guard, schedule)
    gradients = None if guard.training is None else gradients_of(guard)
    releases = schedule.epochs
    if guard.epsilon is not None and gradients is None:
        releases = min(releases, releases_within(mechanism, guard.epsilon, guard.delta))
    evaluations = schedule.epochs if evaluation_schedule(run) == "epoch" else 1
    held_out = min(releases, evaluations)
    if run.compared_version is not None:
        held_out = evaluations + 1
        _check_comparison(guard, mechanism, held_out)
    is_exact = guard.evaluation == "exact" and mechanism.noise != "none"
    uses = 0 if gradients is None else row_uses(schedule)
    counts = Counts(releases, held_out, int(is_exact), uses)
    return RunAccount(run.name, data, file, mechanism, gradients, counts)


def spending_alone(planned: RunAccount, guard: GuardSettings) -> Spending:
    """What a planned run spends of a row by itself."""
    cost = planned.direct if guard.training is None else planned.record_level
    return Spending(releases=planned.releases, epsilon=cost.epsilon(guard.delta))


def _check_comparison(guard: GuardSettings, mechanism: Mechanism, held_out: int) -> None:
    """Raise where the budget does not allow one more release of the held-out rows, by an earlier version."""
    if guard.epsilon is None or guard.evaluation == "exact":
        return
    allowed = releases_within(mechanism, guard.epsilon, guard.delta)
    if held_out > allowed:
        raise SettingsError(
            f"a run that is compared with an earlier version (evaluation.against, `from`) releases held-out rows "
            f'{held_out} times, and guard.epsilon {guard.epsilon:g} allows {allowed}; set evaluation.every = "end"'
        )


@dataclass(frozen=True)
class PartyLedger:
    """The ledger of one party, and which of its files this run reads."""

    accounts: AccountFile
    data: str
    """A hash of the party's files and of how they are read."""
    file: str
    """The name of the training file."""
    column: str = ""
    """Of the labels, at the label party."""
    total_releases: int | None = None
    """The most releases of a row in all runs."""
    policy: PolicySettings | None = None
    """The rules by which this run was accepted; None where a person has."""

    def open_run(self, run: RunSettings, guard: GuardSettings, schedule: Schedule, noise: NoiseKey) -> BudgetedAccount:
        """The account of this run's life, or an error if the run as planned would exceed the party's totals,
        or is larger than what its policy has accepted.

        A life is one noise key: a restart goes on in the same account, and starting over opens another.
        """
        planned = planned_account(run, guard, schedule, data=self.data, file=self.file)
        life = BudgetedAccount(
            self.accounts,
            noise.bound(b"life").fingerprint,
            replace(planned, counts=Counts()),
            total=guard.total_epsilon,
            delta=guard.delta,
            most_releases=self.total_releases,
        )
        life.check_plan(planned.counts)
        if self.policy is not None and not life.has_released:
            check_size(self.policy, run.name, spending_alone(planned, guard), schedule.rows)
        return life

    def show_labels(
        self, run: RunSettings, flips: LabelFlips | None, classes: int, encoding: LabelEncoding | None
    ) -> None:
        """Count what the other parties are about to learn of the labels: answers, or without flips all of them."""
        epsilon = run.privacy.label_epsilon
        if flips is None or epsilon == "off":
            self.accounts.show_labels(f"as they are: {self.column}", ShownLabels(self.column, None, classes), run.name)
            return
        asked = f"{flips.secret.fingerprint} {flips.question(epsilon, max(classes, 2), encoding)}"
        name = hashlib.blake2b(asked.encode(), digest_size=8).hexdigest()
        self.accounts.show_labels(name, ShownLabels(self.column, epsilon, classes), run.name)
