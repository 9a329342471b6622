"""A party's decisions on runs: by its policy, by a person, and only on runs that are what they claim to be."""

import datetime
from dataclasses import replace

import pytest

from fdml.federation.deciding import runs_without_decision, told
from fdml.federation.run_folder import RUNS, run_names
from fdml.privacy.accounts import AccountFile, Counts, LedgerAccounts, RunAccount
from fdml.privacy.ledger import Mechanism, epsilon_of
from fdml.settings import run_hash
from fdml.settings.federation import FederationSettings
from fdml.storage.disk import FolderDisk
from tests.cli.commands import succeed
from tests.federation.homes import decider_of, facts_of, home_of, run_of, write_homes

MONDAY = datetime.datetime(2024, 1, 1, 10, 30)
POLICY = '[policy]\naccept = "policy"\n'
NOISE = '[guard]\nclip = 1.0\nnoise = "gaussian"\nsigma = 4.0\n'


def worth(releases):
    return epsilon_of(Mechanism("gaussian", 1.0, 4.0), releases, 1e-5)


def home(tmp_path, party="", **options):
    return home_of(write_homes(tmp_path, party=party, **options))


def test_a_run_within_the_policy_is_accepted_and_gets_its_folder(tmp_path):
    own = home(tmp_path, POLICY)
    decision = decider_of(own).decide(facts_of(own))
    assert (decision.choice, decision.by, decision.rule) == ("accepted", "policy", "policy.accept")
    assert run_names(own.folder) == ["first"]
    assert [each.decision for each in own.log.read()] == [decision]


def test_without_a_policy_a_run_waits_and_nothing_of_it_is_here(tmp_path):
    own = home(tmp_path)
    assert decider_of(own).decide(facts_of(own)).choice == "waits"
    assert run_names(own.folder) == []


def test_the_same_decision_is_written_once(tmp_path):
    own = home(tmp_path)
    for _ in range(3):
        decider_of(own).decide(facts_of(own))
    assert len(own.log.read()) == 1


def test_a_person_s_word_counts_more_than_the_policy(tmp_path):
    own = home(tmp_path)
    decider = decider_of(own)
    decider.decide(facts_of(own))
    decider.record(run_of(own), "ann", "accepted", reason="by phone")
    decision = decider.decide(facts_of(own))
    assert (decision.choice, decision.by) == ("accepted", "person")
    assert run_names(own.folder) == ["first"]


def test_what_was_refused_stays_refused_though_the_policy_would_allow_it(tmp_path):
    own = home(tmp_path, POLICY)
    decider_of(own).record(run_of(own), "ann", "refused", reason="no")
    assert decider_of(own).decide(facts_of(own)).choice == "refused"


def test_a_run_outside_the_hours_is_taken_when_they_begin(tmp_path):
    own = home(tmp_path, POLICY + 'hours = ["22:00-06:00"]\n')
    decision = decider_of(own, MONDAY).decide(facts_of(own))
    assert (decision.choice, decision.rule) == ("waits", "policy.hours")
    night = MONDAY.replace(hour=23)
    assert decider_of(own, night).decide(facts_of(own)).choice == "accepted"


def test_a_run_that_was_accepted_in_the_hours_does_not_begin_after_them(tmp_path):
    """When a run is accepted by all, and so begins, is up to the others and to the server."""
    own = home(tmp_path, POLICY + 'hours = ["22:00-06:00"]\n')
    night, run = decider_of(own, MONDAY.replace(hour=23)), run_of(own)
    decision = night.decide(facts_of(own))
    assert night.why_not_yet(run, decision) == ""
    day = decider_of(own, MONDAY)
    assert "policy.hours is 22:00-06:00" in day.why_not_yet(run, decision)
    assert day.why_not_yet(run, replace(decision, by="person")) == ""
    (own.folder / RUNS / "first" / "state").mkdir()
    assert day.why_not_yet(run, decision) == ""


def test_a_changed_party_toml_counts_at_once(tmp_path):
    own = home(tmp_path)
    decider = decider_of(own)
    assert decider.decide(facts_of(own)).choice == "waits"
    own.file.write_text(own.file.read_text() + POLICY)
    assert decider.decide(facts_of(own)).choice == "accepted"


def test_the_run_that_would_overspend_is_refused_and_the_rule_is_named(tmp_path):
    own = home(tmp_path, f"{NOISE}total_epsilon = {worth(7)}\n{POLICY}")
    decider = decider_of(own)
    names = ["one", "two", "three"]
    choices = [decider.decide(facts_of(own, run_of(own, name))).choice for name in names]
    assert choices == ["accepted", "accepted", "refused"]
    assert own.log.read()[-1].decision.rule == "guard.total_epsilon"


def test_accepted_runs_that_are_over_count_with_what_they_have_really_spent(tmp_path):
    own = home(tmp_path, f"{NOISE}total_epsilon = {worth(7)}\n{POLICY}")
    decider = decider_of(own)
    for name in ("one", "two"):
        decider.decide(facts_of(own, run_of(own, name)))
    over = [facts_of(own, run_of(own, name), state="stopped", ended_by="cid") for name in ("one", "two")]
    decider.note_ends(over)
    account = RunAccount("one", "d", "f", Mechanism("gaussian", 1.0, 4.0), None, Counts(releases=1))
    AccountFile(FolderDisk(own.settings.ledger)).change(lambda _: LedgerAccounts({"life": account}))
    assert decider.decide(facts_of(own, run_of(own, "three"))).choice == "accepted"


def test_a_guard_that_cannot_work_refuses_the_run(tmp_path):
    training = "[guard.training]\nclip = 1.0\nsigma = 0.01\n"
    own = home(tmp_path, '[guard]\nclip = 1.0\nnoise = "gaussian"\nsigma = "auto"\nepsilon = 1.0\n' + training + POLICY)
    decision = decider_of(own).decide(facts_of(own))
    assert (decision.choice, decision.rule) == ("refused", "guard")


def test_another_run_of_the_same_name_is_refused(tmp_path):
    own = home(tmp_path, POLICY)
    decider_of(own).decide(facts_of(own))
    decision = decider_of(own).decide(facts_of(own, run_of(own, epochs=9)))
    assert (decision.choice, decision.rule) == ("refused", "name")
    assert "training.epochs is 9 here, 3 when run 'first' began" in decision.reason


# Runs that are not what they claim to be.


def test_a_run_of_another_federation_is_refused(tmp_path):
    own = home(tmp_path, POLICY)
    other = FederationSettings(name="shop", parties=("ann", "bob", "eve"))
    run = other.run(name="first", label_party="ann")
    decision = decider_of(own).decide(facts_of(own, run))
    assert (decision.choice, decision.rule) == ("refused", "proposal")
    assert 'parties is ["ann", "bob", "cid"] here' in decision.reason


def test_a_starter_without_the_right_is_refused_whatever_the_server_says(tmp_path):
    own = home(tmp_path, POLICY, rights='[rights]\nstart = ["ann"]')
    decision = decider_of(own).decide(facts_of(own, starter="cid"))
    assert (decision.choice, decision.rule) == ("refused", "proposal")
    assert "'cid' has no right to start runs" in decision.reason


def test_a_run_that_its_starter_has_not_signed_is_refused(tmp_path):
    folder = write_homes(tmp_path, party=POLICY, keys=True)
    own, ann, cid = (home_of(folder, name, plain=False) for name in ("bob", "ann", "cid"))
    unsigned = decider_of(own).decide(facts_of(own, run_of(own, "one")))
    forged = decider_of(own).decide(facts_of(own, run_of(own, "two"), credentials=cid.endpoint.credentials))
    signed = decider_of(own).decide(facts_of(own, run_of(own, "three"), credentials=ann.endpoint.credentials))
    assert [each.choice for each in (unsigned, forged, signed)] == ["refused", "refused", "accepted"]


def test_settings_that_are_none_are_refused(tmp_path):
    own = home(tmp_path, POLICY)
    facts = facts_of(own)
    nonsense = facts.proposal.__class__(b"{}")
    decision = decider_of(own).decide(facts_of(own, proposal=nonsense))
    assert (decision.choice, decision.rule) == ("refused", "proposal")


def test_the_server_cannot_accept_in_a_party_s_place(tmp_path):
    own = home(tmp_path)
    facts = facts_of(own, state="running")
    assert decider_of(own).decide(facts).choice == "waits"


# What the others are told.


def test_of_a_policy_the_others_are_told_the_rule_alone(tmp_path):
    own = home(tmp_path, f"{NOISE}total_epsilon = 0.001\n{POLICY}")
    decision = decider_of(own).decide(facts_of(own))
    assert "0.001" in decision.reason
    said = told(decision)
    assert (said.choice, said.rule, said.reason) == ("refused", "guard.total_epsilon", "")
    assert said.run_hash == run_hash(run_of(own))


def test_what_a_person_writes_is_told(tmp_path):
    own = home(tmp_path)
    decision = decider_of(own).record(run_of(own), "ann", "refused", "policy.hours", "not before Monday")
    assert told(decision).reason == "not before Monday"


@pytest.mark.parametrize("plain", [True, False])
def test_decisions_are_signed_where_there_are_keys(tmp_path, plain):
    folder = write_homes(tmp_path, party=POLICY, keys=True)
    own = home_of(folder, plain=plain)
    decider_of(own).record(run_of(own), "ann", "accepted")
    (entry,) = own.log.read()
    assert bool(entry.signature) is not plain


def test_only_so_many_runs_of_a_search_are_taken_and_another_search_begins_anew(tmp_path):
    own = home(tmp_path, POLICY + "tuning = 2\n")
    names = [("a-1", "a"), ("a-2", "a"), ("a-3", "a"), ("b-1", "b"), ("c", None)]
    choices = []
    for name, search in names:
        run = run_of(own, name).model_copy(update={"search": search})
        choices.append(decider_of(own).decide(facts_of(own, run)).choice)
    assert choices == ["accepted", "accepted", "waits", "accepted", "accepted"]


def test_a_run_of_a_search_does_not_count_itself(tmp_path):
    own = home(tmp_path, POLICY + "tuning = 1\n")
    run = run_of(own, "a-1").model_copy(update={"search": "a"})
    for _ in range(2):
        assert decider_of(own).answer(run, "ann").outcome == "accept"
        decider_of(own).decide(facts_of(own, run))


def test_a_version_that_is_not_here_is_refused_with_its_name_whatever_a_person_says(tmp_path):
    own = home(tmp_path, POLICY)
    run = run_of(own).model_copy(update={"from_version": "a" * 32})
    decision = decider_of(own).decide(facts_of(own, run))
    assert (decision.choice, decision.rule) == ("refused", f"from.{'a' * 32}")
    assert "party 'bob' does not hold version" in decision.reason
    assert told(decision).reason == ""
    assert run_names(own.folder) == []


def test_a_run_whose_line_was_cut_off_the_end_of_the_log_is_named(tmp_path):
    own = home(tmp_path, POLICY)
    for name in ("one", "two"):
        decider_of(own).decide(facts_of(own, run_of(own, name)))
    assert runs_without_decision(own) == []
    first, _ = own.log.path.read_bytes().splitlines(keepends=True)
    own.log.path.write_bytes(first)
    assert len(own.log.read()) == 1
    assert runs_without_decision(own) == ["two"]
    assert "run 'two' has begun here and no line accepts it" in succeed(
        "runs", "decisions", "--party", own.file, "--plain"
    )
