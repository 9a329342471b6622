"""What answers cost: one release of a row per version, one more when values changed, refused when the total is spent."""

import contextlib
from dataclasses import replace

import pytest

from fdml.errors import PrivacyBudgetSpent
from fdml.privacy.accounts import AccountFile, BudgetedAccount, Counts, RunAccount
from fdml.privacy.ledger import Mechanism
from fdml.serving.releases import LedgerReleases
from fdml.storage.memory import MemoryDisk
from tests.serving.published import IDS, publication_of, values_of

NOISY = Mechanism("gaussian", 1.0, 4.0)


def publication(generation=1, party="bob", mechanism=NOISY):
    found = publication_of(party, IDS, values_of()[party], mechanism=mechanism)
    return replace(found, facts=replace(found.facts, generation=generation))


@pytest.fixture
def accounts():
    return AccountFile(MemoryDisk())


def ledger_of(accounts, **totals):
    return LedgerReleases(accounts, **{"total_epsilon": None, "delta": 1e-5, **totals})


def counted(accounts):
    return {each.run: each.counts.releases for each in accounts.read().runs.values()}


def trained_before(accounts, releases):
    """A training run that has released a row so often."""
    account = RunAccount("first", "data", "file", NOISY, None)
    BudgetedAccount(accounts, "life", account, total=None, delta=1e-5).count(releases=releases)


def test_the_first_answer_is_one_release_and_the_same_again_is_none(accounts):
    ledger = ledger_of(accounts)
    for _ in range(3):
        ledger.count(publication())
    assert counted(accounts) == {"first (predictions)": 1}


def test_it_is_on_disk_before_the_answer_and_found_after_a_restart(accounts):
    ledger_of(accounts).count(publication())
    ledger_of(accounts).count(publication())
    assert counted(accounts) == {"first (predictions)": 1}


def test_changed_values_are_releases_of_their_own(accounts):
    ledger = ledger_of(accounts)
    ledger.count(publication(generation=1))
    ledger.count(publication(generation=3))
    assert counted(accounts) == {"first (predictions)": 3}


def test_answers_add_to_what_training_has_spent(accounts):
    trained_before(accounts, 2)
    before = accounts.read().spent(1e-5, record_level=False)
    ledger_of(accounts).count(publication())
    assert counted(accounts) == {"first": 2, "first (predictions)": 1}
    assert accounts.read().spent(1e-5, record_level=False) > before


def test_a_total_that_an_answer_would_overspend_refuses_it_and_counts_nothing(accounts):
    trained_before(accounts, 2)
    spent = accounts.read().spent(1e-5, record_level=False)
    with pytest.raises(PrivacyBudgetSpent, match="total_epsilon"):
        ledger_of(accounts, total_epsilon=spent * 1.01).count(publication())
    assert counted(accounts) == {"first": 2}
    ledger_of(accounts, total_epsilon=spent * 2).count(publication())
    assert counted(accounts)["first (predictions)"] == 1


def test_an_answer_that_was_given_goes_on_being_given_when_the_total_is_spent(accounts):
    ledger_of(accounts).count(publication())
    spent = accounts.read().spent(1e-5, record_level=False)
    ledger_of(accounts, total_epsilon=spent * 1.001).count(publication())
    with pytest.raises(PrivacyBudgetSpent):
        ledger_of(accounts, total_epsilon=spent * 1.001).count(publication(generation=2))


def test_the_most_releases_of_a_row_count_answers_too(accounts):
    trained_before(accounts, 4)
    ledger = ledger_of(accounts, total_releases=5)
    ledger.count(publication())
    with pytest.raises(PrivacyBudgetSpent, match=r"to 6, over policy.total_releases 5"):
        ledger.count(publication(generation=2))
    assert counted(accounts)["first (predictions)"] == 1


@pytest.mark.parametrize("totals", [{"total_releases": 5}, {"total_epsilon": 2.5}])
def test_what_another_process_counts_in_between_is_counted(totals):
    """A total is looked at in the same turn in which the ledger is changed, so that two cannot both have the last."""
    disk, others = MemoryDisk(), []

    @contextlib.contextmanager
    def turn():
        if not others:
            others.append(1)
            trained_before(AccountFile(disk), 5)
        yield

    accounts = AccountFile(disk, turn)
    with pytest.raises(PrivacyBudgetSpent):
        ledger_of(accounts, **totals).count(publication())
    assert counted(accounts) == {"first": 5}


def test_exact_answers_cost_everything(accounts):
    ledger_of(accounts).count(publication(mechanism=Mechanism("none", float("inf"), 0.0)))
    (account,) = accounts.read().runs.values()
    assert account.counts == Counts(releases=1)
    assert account.direct.epsilon(1e-5) == float("inf")
