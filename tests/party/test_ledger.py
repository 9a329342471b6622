"""A party's part in its ledger: planned releases, lives, labels."""

import math

import numpy as np
import pytest

from fdml.data.label_encoding import LabelEncoding
from fdml.errors import PrivacyBudgetSpent, SettingsError
from fdml.party.label_flips import LabelFlips
from fdml.party.ledger import PartyLedger
from fdml.party.policy import PolicySettings
from fdml.privacy.accounts import AccountFile, Counts
from fdml.privacy.ledger import Mechanism, epsilon_of
from fdml.privacy.noise import NoiseKey
from fdml.protocol.schedule import schedule_for
from fdml.settings import GuardSettings, PrivacySettings, RunSettings
from tests.storage.memory_disk import MemoryDisk

SCHEDULE = schedule_for(24, 2, 4, 2, 5, 7)
"""Five epochs, two passes each."""
RUN = RunSettings(parties=("a", "b"), label_party="a")
KEY = NoiseKey(b"k" * 32)
FLIPS = LabelFlips(NoiseKey(b"s" * 32), "churn")
TWO = LabelEncoding("binary", np.array(["no", "yes"]))


def ledger():
    return PartyLedger(AccountFile(MemoryDisk()), "fingerprint", "data.csv", "churn")


def guard(**changes):
    return GuardSettings(**{"clip": 1.0, "noise": "gaussian", "sigma": 4.0, **changes})


def worth(releases):
    return epsilon_of(Mechanism("gaussian", 1.0, 4.0), releases, 1e-5)


def test_a_run_within_the_total_is_counted_under_its_own_noise_key():
    own = ledger()
    own.open_run(RUN, guard(total_epsilon=worth(5)), SCHEDULE, KEY).count(releases=1)
    own.open_run(RUN, guard(total_epsilon=worth(5)), SCHEDULE, KEY).count(releases=2)
    own.open_run(RUN, guard(), SCHEDULE, NoiseKey(b"o" * 32)).count(releases=1)
    runs = own.accounts.read().runs
    assert sorted(each.counts.releases for each in runs.values()) == [1, 2]
    assert {(each.run, each.data, each.file) for each in runs.values()} == {("run", "fingerprint", "data.csv")}
    assert KEY.secret.hex() not in str(runs)


def test_all_epochs_are_planned_for():
    with pytest.raises(SettingsError, match=r"over guard\.total_epsilon"):
        ledger().open_run(RUN, guard(total_epsilon=worth(4)), SCHEDULE, KEY)


def test_a_run_that_its_own_budget_ends_early_is_planned_up_to_there():
    ledger().open_run(RUN, guard(total_epsilon=worth(3), epsilon=worth(2)), SCHEDULE, KEY)


def test_uses_in_training_are_planned_for():
    training = {"clip": 1.0, "sigma": 40.0}
    gradients = 4 / 1600
    enough = epsilon_of(Mechanism("gaussian", 1.0, 4.0), 5, 1e-5, 10 * gradients)
    ledger().open_run(RUN, guard(total_epsilon=enough, training=training), SCHEDULE, KEY)
    with pytest.raises(SettingsError, match=r"over guard\.total_epsilon"):
        ledger().open_run(RUN, guard(total_epsilon=0.99 * enough, training=training), SCHEDULE, KEY)


def test_earlier_runs_leave_less_for_the_next():
    own = ledger()
    total = guard(total_epsilon=worth(8))
    own.open_run(RUN, total, SCHEDULE, KEY).count(releases=5)
    with pytest.raises(SettingsError, match="is spent already"):
        own.open_run(RUN, total, SCHEDULE, NoiseKey(b"o" * 32))


def test_finding_6_labels_are_counted_once_for_each_question():
    own = ledger()
    private = RUN.model_copy(update={"privacy": PrivacySettings(labels="private", label_epsilon=2.0)})
    for name in ("monday", "tuesday"):
        own.show_labels(private.model_copy(update={"name": name}), FLIPS, 2, TWO)
    assert own.accounts.read().label_epsilons() == {"churn": 2.0}
    weaker = private.model_copy(update={"privacy": PrivacySettings(labels="private", label_epsilon=0.5)})
    own.show_labels(weaker, FLIPS, 2, TWO)
    assert own.accounts.read().label_epsilons() == {"churn": 2.5}
    own.show_labels(private, LabelFlips(NoiseKey(b"n" * 32), "churn"), 2, TWO)
    assert own.accounts.read().label_epsilons() == {"churn": 4.5}, "a new secret gives new answers"


@pytest.mark.parametrize("privacy", [PrivacySettings(), PrivacySettings(labels="private", label_epsilon="off")])
def test_labels_shown_as_they_are_have_no_bound(privacy):
    own = ledger()
    flips = FLIPS if privacy.labels == "private" else None
    own.show_labels(RUN.model_copy(update={"privacy": privacy}), flips, 2, TWO)
    assert own.accounts.read().label_epsilons() == {"churn": math.inf}


def test_nothing_is_written_before_the_first_release():
    own = ledger()
    own.open_run(RUN, guard(), SCHEDULE, KEY)
    assert own.accounts.read().runs == {}
    assert Counts() == Counts(0, 0, 0, 0)


# The rules of [policy], over rows as they were found.


def ruled(accounts=None, total_releases=None, **rules):
    """The ledger of a party whose policy has these rules and has accepted the run."""
    policy = PolicySettings(**rules) if rules else None
    book = AccountFile(MemoryDisk()) if accounts is None else accounts
    return PartyLedger(book, "fingerprint", "data.csv", total_releases=total_releases, policy=policy)


@pytest.mark.parametrize(
    ("rules", "rule"),
    [({"max_releases": 4}, "max_releases"), ({"max_rows": 23}, "max_rows"), ({"max_epsilon": 0.1}, "max_epsilon")],
)
def test_a_run_that_is_larger_than_what_the_policy_took_it_for_releases_nothing(rules, rule):
    """Before the alignment the number of rows, and with it that of "auto" epochs, is only guessed."""
    own = ruled(**rules)
    with pytest.raises(SettingsError, match=rf"policy\.{rule} .*`fdml runs approve run`"):
        own.open_run(RUN, guard(), SCHEDULE, KEY)
    assert own.accounts.read().runs == {}


def test_a_run_within_the_policy_or_under_way_goes_on():
    own = ruled(max_releases=5, max_rows=24, max_epsilon=worth(5))
    own.open_run(RUN, guard(), SCHEDULE, KEY).count(releases=1)
    stricter = ruled(own.accounts, max_releases=1)
    stricter.open_run(RUN, guard(), SCHEDULE, KEY).count(releases=2)


@pytest.mark.parametrize("noise", [guard(), GuardSettings()])
def test_a_run_that_would_exceed_the_total_of_releases_releases_nothing(noise):
    own = ruled(total_releases=9)
    own.open_run(RUN, noise, SCHEDULE, KEY).count(releases=5)
    with pytest.raises(SettingsError, match=r"to 10, over policy\.total_releases 9; 5 were made already"):
        own.open_run(RUN, noise, SCHEDULE, NoiseKey(b"o" * 32))


def test_two_runs_at_once_cannot_exceed_the_total_of_releases_together():
    own = ruled(total_releases=9)
    one, two = (own.open_run(RUN, guard(), SCHEDULE, NoiseKey(key * 32)) for key in (b"k", b"o"))
    one.count(releases=5)
    two.count(releases=4)
    with pytest.raises(PrivacyBudgetSpent, match=r"over policy\.total_releases 9"):
        two.count(releases=5)
    assert sorted(each.counts.releases for each in own.accounts.read().runs.values()) == [4, 5]
