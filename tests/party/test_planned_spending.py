"""What a proposed run would spend: alone, after others, and beside others that are not over."""

import math

import pytest

from fdml.party.ledger import PartyLedger
from fdml.party.planned_spending import planned_run, spending_of
from fdml.privacy.accounts import AccountFile, LedgerAccounts
from fdml.privacy.ledger import Mechanism, epsilon_of
from fdml.privacy.noise import NoiseKey
from fdml.protocol.schedule import schedule_for
from fdml.settings import GuardSettings, RunSettings, TrainingSettings
from tests.storage.memory_disk import MemoryDisk

GUARD = GuardSettings(clip=1.0, noise="gaussian", sigma=4.0)
RUN = RunSettings(name="first", parties=("a", "b"), label_party="a", training=TrainingSettings(epochs=5))
NEXT = RUN.model_copy(update={"name": "next"})


def worth(releases):
    return epsilon_of(Mechanism("gaussian", 1.0, 4.0), releases, 1e-5)


def spending(run=NEXT, guard=GUARD, book=None, accepted=(), rows=1000):
    plans = [planned_run(each, guard, rows) for each in accepted]
    return spending_of(planned_run(run, guard, rows), guard, book or LedgerAccounts(), plans)


def book_of(run, releases):
    ledger = PartyLedger(AccountFile(MemoryDisk()), "data", "file")
    life = ledger.open_run(run, GUARD, schedule_for(24, 2, 4, 1, 5, 7), NoiseKey(b"k" * 32))
    life.count(releases=releases)
    return ledger.accounts.read()


def test_a_first_run_spends_its_epochs():
    found = spending()
    assert (found.releases, found.total_releases) == (5, 5)
    assert found.epsilon == found.total_epsilon == pytest.approx(worth(5))


def test_runs_before_it_count():
    found = spending(book=book_of(RUN, 3))
    assert found.epsilon == pytest.approx(worth(5))
    assert found.total_epsilon == pytest.approx(worth(8))
    assert found.total_releases == 8


def test_an_accepted_run_counts_with_what_it_has_yet_to_release():
    assert spending(book=book_of(RUN, 3), accepted=[RUN]).total_epsilon == pytest.approx(worth(10))
    assert spending(accepted=[RUN]).total_releases == 10


def test_a_run_that_has_begun_is_not_counted_twice():
    assert spending(run=RUN, book=book_of(RUN, 3)).total_epsilon == pytest.approx(worth(5))


def test_without_noise_there_is_no_bound():
    found = spending(guard=GuardSettings())
    assert math.isinf(found.epsilon)
    assert math.isinf(found.total_epsilon)
    assert found.releases == 5


def test_held_out_rows_without_noise_have_no_bound():
    assert math.isinf(spending(guard=GUARD.model_copy(update={"evaluation": "exact"})).epsilon)


def test_a_run_that_its_budget_ends_early_spends_no_more():
    found = spending(guard=GUARD.model_copy(update={"epsilon": worth(2)}))
    assert found.releases == 2


def test_unknown_rows_are_planned_with_the_most_epochs_that_a_rule_gives():
    free = RUN.model_copy(update={"training": TrainingSettings()})
    unknown = spending(run=free, rows=None).releases
    assert all(spending(run=free, rows=rows).releases <= unknown for rows in (1, 10, 1000, 10**6))


def test_few_exchanges_are_few_releases():
    few = RUN.model_copy(update={"training": TrainingSettings(epochs=20, exchanges=3)})
    assert spending(run=few).releases == 3


def test_noise_in_training_counts_each_use_of_a_row():
    guard = GuardSettings(clip=1.0, noise="gaussian", sigma=4.0, training={"clip": 1.0, "sigma": 40.0})
    expected = epsilon_of(Mechanism("gaussian", 1.0, 4.0), 5, 1e-5, 5 * 4 / 1600)
    assert spending(guard=guard).epsilon == pytest.approx(expected)
