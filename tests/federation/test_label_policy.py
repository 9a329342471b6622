"""What runs that others start may show of a label party's labels, all together."""

import math

import pytest

from fdml.party.planned_spending import shown_of_labels
from fdml.privacy.accounts import AccountFile, LedgerAccounts, ShownLabels
from fdml.settings import PrivacySettings
from fdml.storage.disk import FolderDisk
from tests.federation.homes import decider_of, facts_of, home_of, run_of, write_homes

POLICY = '[data]\npath = "rows.csv"\nlabel = "y"\n[policy]\naccept = "policy"\ntotal_label_epsilon = 5.0\n'


def label_party(folder):
    return home_of(write_homes(folder, party=POLICY), "ann")


def asking(own, name, epsilon, labels="private"):
    """A run of another party that asks for labels with this epsilon."""
    privacy = PrivacySettings(labels=labels, label_epsilon=epsilon)
    return run_of(own, name).model_copy(update={"privacy": privacy})


def test_runs_with_ever_new_label_epsilons_wait_once_the_total_is_reached(tmp_path):
    """Each is a new question to the same labels: many answers together tell the truth."""
    own = label_party(tmp_path)
    runs = [asking(own, f"run-{number}", 2.0 + number / 100) for number in range(4)]
    decisions = [decider_of(own).decide(facts_of(own, run, starter="bob")) for run in runs]
    assert [each.choice for each in decisions] == ["accepted", "accepted", "waits", "waits"]
    assert decisions[-1].rule == "policy.total_label_epsilon"
    again = asking(own, "again", 2.0)
    assert decider_of(own).decide(facts_of(own, again, starter="bob")).choice == "accepted"


@pytest.mark.parametrize(("labels", "epsilon"), [("shared", 2.0), ("private", "off")])
def test_labels_that_would_leave_as_they_are_wait_for_a_person(tmp_path, labels, epsilon):
    own = label_party(tmp_path)
    decision = decider_of(own).decide(facts_of(own, asking(own, "first", epsilon, labels), starter="bob"))
    assert (decision.choice, decision.rule) == ("waits", "policy.total_label_epsilon")
    assert "an epsilon without bound" in decision.reason


def test_what_earlier_runs_have_shown_counts(tmp_path):
    own = label_party(tmp_path)
    shown = {"one": ShownLabels("y", 4.0, 2, ("old",)), "other": ShownLabels("z", None, 2, ("old",))}
    AccountFile(FolderDisk(own.settings.ledger)).change(lambda _: LedgerAccounts({}, shown))
    assert decider_of(own).decide(facts_of(own, asking(own, "new", 2.0))).choice == "waits"
    assert decider_of(own).decide(facts_of(own, asking(own, "same", 4.0))).choice == "accepted"


def test_labels_of_another_party_are_not_this_one_s(tmp_path):
    own = label_party(tmp_path)
    run = asking(own, "first", "off")
    assert shown_of_labels("bob", "", [run], LedgerAccounts()) == 0.0
    assert math.isinf(shown_of_labels("ann", "y", [run], LedgerAccounts()))
