"""The ledger that outlives runs: nothing leaves that it has not counted, and nothing is counted twice."""

import json
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import PrivacyBudgetSpent, SettingsError, StateCorrupt
from fdml.privacy.accounts import (
    ACCOUNTS,
    AccountFile,
    BudgetedAccount,
    Cost,
    Counts,
    LedgerAccounts,
    RunAccount,
    ShownLabels,
)
from fdml.privacy.guard import NO_NOISE, Guard
from fdml.privacy.ledger import GradientMechanism, Ledger, Mechanism, epsilon_of
from fdml.privacy.noise import NoiseKey
from fdml.privacy.perturb import Perturbation
from fdml.privacy.releases import ReleaseStore
from simulator.disk import Crashed, VirtualDisk
from tests.examples import examples
from tests.storage.memory_disk import MemoryDisk, PowerCut

GAUSSIAN, LAPLACE = Mechanism("gaussian", 1.0, 4.0), Mechanism("laplace", 1.0, 8.0)
GRADIENTS = GradientMechanism(1.0, 20.0)
DELTA = 1e-5
PREDICTIONS = np.linspace(-0.4, 0.4, 6).reshape(3, 2)


def run(mechanism=GAUSSIAN, gradients=None, **counts):
    return RunAccount("shop", "fingerprint", "data.csv", mechanism, gradients, Counts(**counts))


def spent(*runs, record_level=False):
    return LedgerAccounts({str(number): each for number, each in enumerate(runs)}).spent(
        DELTA, record_level=record_level
    )


def life(disk, name="life 1", *, total=None, mechanism=GAUSSIAN, gradients=None):
    return BudgetedAccount(AccountFile(disk), name, run(mechanism, gradients), total=total, delta=DELTA)


def counts_on(disk, name="life 1"):
    known = AccountFile(disk).read().runs
    return known[name].counts if name in known else Counts()


# What runs add up to


def test_runs_with_gaussian_noise_add_up_as_one_with_all_releases():
    assert spent(run(releases=3), run(releases=4)) == epsilon_of(GAUSSIAN, 7, DELTA)


def test_laplace_noise_comes_on_top():
    assert spent(run(releases=3), run(LAPLACE, releases=2)) == pytest.approx(
        epsilon_of(GAUSSIAN, 3, DELTA) + epsilon_of(LAPLACE, 2, DELTA)
    )


def test_a_row_is_trained_on_or_held_out_in_a_run_and_the_worse_of_both_counts():
    assert spent(run(releases=3, held_out=5)) == epsilon_of(GAUSSIAN, 5, DELTA)
    assert spent(run(releases=5, held_out=3), run(releases=1, held_out=2)) == epsilon_of(GAUSSIAN, 7, DELTA)


def test_uses_in_training_count_for_the_record_level_only():
    used = run(gradients=GRADIENTS, releases=2, uses=9)
    assert spent(used) == epsilon_of(GAUSSIAN, 2, DELTA)
    assert spent(used, record_level=True) == epsilon_of(GAUSSIAN, 2, DELTA, 9 * GRADIENTS.squared_mu)


@pytest.mark.parametrize(
    ("account", "direct", "record_level"),
    [
        (run(NO_NOISE, releases=1), math.inf, math.inf),
        (run(releases=1, exact=1), math.inf, math.inf),
        (run(releases=1), epsilon_of(GAUSSIAN, 1, DELTA), math.inf),
        (run(NO_NOISE), 0.0, 0.0),
    ],
    ids=["no noise", "exact evaluation", "no noise in training", "nothing released"],
)
def test_what_nothing_protects_has_no_bound(account, direct, record_level):
    assert (spent(account), spent(account, record_level=True)) == (direct, record_level)


def test_costs_of_nothing_are_nothing():
    assert Cost().epsilon(DELTA) == spent() == 0.0


def test_labels_add_up_over_questions_and_not_over_runs():
    file = AccountFile(MemoryDisk())
    for question, epsilon, name in (("q1", 2.0, "a"), ("q1", 2.0, "b"), ("q1", 2.0, "b"), ("q2", 0.5, "b")):
        file.show_labels(question, ShownLabels("churn", epsilon, 2), name)
    file.show_labels("q3", ShownLabels("income", None, 3), "c")
    book = file.read()
    assert book.label_epsilons() == {"churn": 2.5, "income": math.inf}
    assert book.labels["q1"].runs == ("a", "b")


# The file


def test_counts_only_rise_and_are_there_at_the_next_start():
    disk = MemoryDisk()
    account = life(disk)
    account.count(releases=2)
    account.count(releases=1, held_out=1)
    account.count(uses=4, has_left=True)
    again = life(disk)
    again.count(releases=1)
    assert counts_on(disk) == Counts(2, 1, 0, 4)
    again.count(releases=3)
    assert counts_on(disk) == Counts(3, 1, 0, 4)


def test_what_is_counted_already_is_not_written_again():
    disk = MemoryDisk()
    account = life(disk)
    account.count(releases=2)
    before = disk.writes
    for _ in range(5):
        account.count(releases=2)
        account.count(releases=1)
    assert disk.writes == before


def test_without_noise_all_that_a_run_plans_is_counted_with_its_first_release():
    """The first costs everything already, and so no later one has to wait for the disk."""
    disk = MemoryDisk()
    account = life(disk, mechanism=NO_NOISE)
    account.check_plan(Counts(releases=9, held_out=3))
    account.count(exact=0)
    assert counts_on(disk) == Counts(), "nothing has left"
    account.count(releases=1)
    assert counts_on(disk) == Counts(releases=9), "nothing of held-out rows has left"
    before = disk.writes
    for releases in range(2, 10):
        account.count(releases=releases)
    assert disk.writes == before
    account.count(releases=10, held_out=1)
    assert counts_on(disk) == Counts(releases=10, held_out=3)


@pytest.mark.parametrize(("mechanism", "gradients"), [(GAUSSIAN, None), (NO_NOISE, GRADIENTS)])
def test_with_noise_every_release_is_counted_as_it_leaves(mechanism, gradients):
    disk = MemoryDisk()
    account = life(disk, mechanism=mechanism, gradients=gradients)
    account.check_plan(Counts(releases=9, held_out=3, uses=4))
    account.count(releases=1, held_out=1)
    assert counts_on(disk) == Counts(releases=1, held_out=1)


def test_a_count_that_was_not_stored_raises_before_anything_leaves():
    disk = MemoryDisk(writes_left=1)
    account = life(disk)
    account.count(releases=1)
    with pytest.raises(PowerCut):
        account.count(releases=2)
    assert counts_on(disk.copy()).releases == 1


@pytest.mark.parametrize("content", [b"", b"{}", b"[1", b'{"layout": "other", "runs": {}, "labels": {}}'])
def test_a_damaged_ledger_is_named_and_never_taken_for_an_empty_one(content):
    disk = MemoryDisk()
    disk.replace(ACCOUNTS, content)
    with pytest.raises(StateCorrupt, match=r"accounts\.json.*damaged.*what was spent is unknown"):
        life(disk).count(releases=1)
    assert disk.read(ACCOUNTS) == content


def test_counts_below_nothing_are_damage():
    disk = MemoryDisk()
    life(disk).count(releases=3)
    known = json.loads(disk.read(ACCOUNTS))
    known["runs"]["life 1"]["counts"]["releases"] = -1
    disk.replace(ACCOUNTS, json.dumps(known).encode())
    with pytest.raises(StateCorrupt, match="no counts"):
        AccountFile(disk).read()


# A total


def test_the_release_that_would_overspend_the_total_is_refused_and_not_counted():
    disk = MemoryDisk()
    total = epsilon_of(GAUSSIAN, 5, DELTA)
    life(disk, "earlier").count(releases=3)
    account = life(disk, total=total)
    account.count(releases=2)
    with pytest.raises(PrivacyBudgetSpent, match=r"over guard\.total_epsilon .* `fdml budget show`"):
        account.count(releases=3)
    assert counts_on(disk).releases == 2


def test_what_has_left_is_counted_whatever_the_total():
    disk = MemoryDisk()
    account = life(disk, total=epsilon_of(GAUSSIAN, 1, DELTA))
    account.count(releases=3, has_left=True)
    assert counts_on(disk).releases == 3


def test_a_run_that_cannot_be_finished_within_the_total_is_refused_at_its_start():
    disk = MemoryDisk()
    life(disk, "earlier").count(releases=3)
    account = life(disk, total=epsilon_of(GAUSSIAN, 5, DELTA))
    account.check_plan(Counts(releases=2, held_out=2))
    with pytest.raises(SettingsError, match=r"over guard\.total_epsilon .* is spent already\. Plan more noise"):
        account.check_plan(Counts(releases=3))


def test_a_run_under_way_is_not_refused_at_a_restart_but_at_its_release():
    disk = MemoryDisk()
    account = life(disk, total=epsilon_of(GAUSSIAN, 2, DELTA))
    account.count(releases=1)
    life(disk, "another").count(releases=1)
    again = life(disk, total=epsilon_of(GAUSSIAN, 2, DELTA))
    again.check_plan(Counts(releases=9))
    again.count(releases=1)
    with pytest.raises(PrivacyBudgetSpent):
        again.count(releases=2)


def test_the_total_is_of_the_scope_that_the_guard_covers():
    disk = MemoryDisk()
    within = epsilon_of(GAUSSIAN, 1, DELTA, 4 * GRADIENTS.squared_mu)
    account = life(disk, total=within, gradients=GRADIENTS)
    account.count(releases=1, uses=4)
    with pytest.raises(PrivacyBudgetSpent):
        account.count(uses=5)


# Behind a guard, through crashes


def guard_on(disk, account, *, noisy=True, exact=False, facts=None):
    mechanism = GAUSSIAN if noisy else NO_NOISE
    return Guard(
        Perturbation(mechanism, NoiseKey(b"k" * 32)),
        Ledger(mechanism, None, DELTA, None, account),
        held_out=Perturbation(NO_NOISE) if exact else None,
        store=ReleaseStore(disk, facts) if noisy else None,
    )


def test_a_guard_counts_the_most_released_rows():
    disk = MemoryDisk()
    guard = guard_on(MemoryDisk(), life(disk))
    for step in range(5):
        guard.push(step, step % 3, PREDICTIONS)
    guard.held_out(1, PREDICTIONS)
    assert counts_on(disk) == Counts(releases=2, held_out=1)


def test_an_exact_evaluation_is_counted_as_one():
    disk = MemoryDisk()
    guard_on(MemoryDisk(), life(disk), exact=True).held_out(1, PREDICTIONS)
    assert counts_on(disk) == Counts(exact=1)


def test_releases_without_noise_are_counted_too():
    disk = MemoryDisk()
    guard_on(MemoryDisk(), life(disk, mechanism=NO_NOISE), noisy=False).push(0, 0, PREDICTIONS)
    assert spent(AccountFile(disk).read().runs["life 1"]) == math.inf


def test_a_ledger_that_was_lost_is_made_whole_from_what_the_state_knows():
    """As far as this run goes: what earlier runs spent is only in the ledger."""
    releases, lost = MemoryDisk(), MemoryDisk()
    guard = guard_on(releases, life(MemoryDisk()))
    for step in range(4):
        guard.push(step, 0, PREDICTIONS)
    again = guard_on(releases, life(lost, total=epsilon_of(GAUSSIAN, 1, DELTA)))
    again.restore(None, lambda _: 0)
    assert counts_on(lost).releases == 4


@examples(150)
@given(st.integers(0, 2**32), st.data())
def test_wherever_a_party_dies_the_ledger_has_counted_all_that_left_and_nothing_twice(seed, data):
    """A server notes all that it ever saw; the party is killed at any write of either disk, and starts over at times."""
    random = Random(seed)
    state, ledger = VirtualDisk(random), VirtualDisk(random)
    seen, lives, step = {}, 1, 0

    def start():
        try:
            guard = guard_on(state, life(ledger, f"life {lives}"), facts={"noise key": str(lives)})
        except StateCorrupt:  # it died while it started over
            state.remove("releases")
            return start()
        guard.restore(None, lambda at: at % 2)
        return guard

    guard = start()
    for _ in range(data.draw(st.integers(1, 30))):
        action = data.draw(st.sampled_from(["push", "push", "again", "held-out", "arm", "die", "fresh"]))
        try:
            match action:
                case "push" | "again":
                    at = step if action == "push" else max(0, step - 1)
                    guard.push(at, at % 2, PREDICTIONS)
                    seen.setdefault((lives, "push", at % 2), set()).add(at)
                    step = max(step, at + 1)
                case "held-out":
                    guard.held_out(1, PREDICTIONS)
                    seen.setdefault((lives, "held-out", 0), set()).add(1)
                case "arm":
                    data.draw(st.sampled_from([state, ledger])).arm(data.draw(st.integers(0, 2)))
                case "die":
                    raise Crashed
                case "fresh":
                    lives, step = lives + 1, 0
                    state.remove("releases")
                    guard = start()
        except Crashed:
            state.disarm()
            ledger.disarm()
            guard = start()
        for number in range(1, lives + 1):
            counted = counts_on(ledger, f"life {number}")
            pushed = max((len(steps) for key, steps in seen.items() if key[:2] == (number, "push")), default=0)
            assert pushed <= counted.releases <= pushed + 1, "one more where it died between counting and sending"
            assert len(seen.get((number, "held-out", 0), ())) <= counted.held_out <= 1
