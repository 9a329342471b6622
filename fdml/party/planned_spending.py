"""What a proposed run would spend of a party's ledger, with what all runs before it spent and have yet to spend."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from fdml.party.ledger import planned_account, spending_alone
from fdml.party.policy import Spending
from fdml.privacy.accounts import LedgerAccounts, RunAccount
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.schedule import schedule_of
from fdml.settings import GuardSettings, RunSettings


def planned_run(run: RunSettings, guard: GuardSettings, rows: int | None) -> RunAccount:
    """The account that a run will have. Where the rows are not known it is that of few rows, which have most epochs."""
    known = 1 if rows is None else rows
    return planned_account(run, guard, schedule_of(known, agreed_training(run.training, known, len(run.parties))))


def spending_of(
    planned: RunAccount, guard: GuardSettings, book: LedgerAccounts, accepted: Iterable[RunAccount] = ()
) -> Spending:
    """What a planned run spends, and what all come to with it.

    `accepted` are the plans of runs that were accepted and are not over: what they have yet to release counts too.
    """
    after = book
    for each in (*accepted, planned):
        after = _with(after, each)
    alone = spending_alone(planned, guard)
    return Spending(
        releases=alone.releases,
        epsilon=alone.epsilon,
        total_releases=after.releases,
        total_epsilon=after.spent(guard.delta, record_level=guard.training is not None),
    )


def shown_of_labels(party: str, column: str, runs: Iterable[RunSettings], book: LedgerAccounts) -> float:
    """The epsilon of a label of this party once these runs have shown theirs, with all that was shown before.

    The same label_epsilon again gives the same answers and adds nothing; another one is drawn independently.
    """
    shown = [each.epsilon for each in book.labels.values() if each.column == column]
    before = [math.inf if each is None else each for each in shown]
    new = {_label_epsilon(run) for run in runs if run.label_party == party}
    return sum(before) + sum(new.difference(before))


def _label_epsilon(run: RunSettings) -> float:
    """What a run shows of a label by itself; infinite where labels leave as they are."""
    epsilon = run.privacy.label_epsilon
    return math.inf if run.privacy.labels == "shared" or epsilon == "off" else epsilon


def _with(book: LedgerAccounts, planned: RunAccount) -> LedgerAccounts:
    """The book once a planned run is over; what it has released by now is part of its plan."""
    begun = {name: each for name, each in book.runs.items() if each.run == planned.run}
    if not begun:
        return replace(book, runs={**book.runs, f"planned: {planned.run}": planned})
    raised = {name: replace(each, counts=each.counts.at_least(planned.counts)) for name, each in begun.items()}
    return replace(book, runs={**book.runs, **raised})
