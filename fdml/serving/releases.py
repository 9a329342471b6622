"""What a party's answers cost, in the ledger that outlives runs.

An answer repeats stored bits, so a row costs one release per version, and one more for every generation of the column
in which values changed or rows had gone: never too little, and too much for a row that did not change or was never
asked for.
"""

from __future__ import annotations

from fdml.privacy.accounts import AccountFile, BudgetedAccount, RunAccount
from fdml.serving.publication import Publication


class LedgerReleases:
    """Counts answers in a party's ledger, before they leave."""

    def __init__(
        self, accounts: AccountFile, *, total_epsilon: float | None, delta: float, total_releases: int | None = None
    ) -> None:
        """The totals are those of all runs and all answers together: of epsilon, and of releases of a row."""
        self._accounts = accounts
        self._total_epsilon = total_epsilon
        self._delta = delta
        self._total_releases = total_releases
        self._open: dict[str, BudgetedAccount] = {}
        self._counted: dict[str, int] = {}

    def count(self, publication: Publication) -> None:
        """Count that rows of this generation leave; durable on return. Raises and counts nothing if that overspends."""
        facts = publication.facts
        if self._counted.get(facts.account, 0) >= facts.generation:
            return
        account = self._open.setdefault(facts.account, self._opened(publication))
        account.count(releases=facts.generation)
        self._counted[facts.account] = facts.generation

    def _opened(self, publication: Publication) -> BudgetedAccount:
        facts = publication.facts
        account = RunAccount(
            f"{facts.run.name} (predictions)", facts.data, facts.file, facts.mechanism, facts.gradients
        )
        return BudgetedAccount(
            self._accounts,
            facts.account,
            account,
            total=self._total_epsilon,
            delta=self._delta,
            most_releases=self._total_releases,
        )
