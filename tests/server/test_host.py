"""The host of a federation's runs: who may start what, what was decided, and that a restart knows it all."""

import pytest
from cryptography import x509

from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.federation.certificates import Authority
from fdml.protocol.certificates import fingerprint
from fdml.protocol.run_messages import Proposal, RunQuery
from fdml.protocol.signed_proposals import make_proposal
from fdml.server import host as hosts
from fdml.server.hosted_run import HostedRun
from fdml.settings.federation import FederationSettings
from tests.server.hosts import FEDERATION, Hosted, run_of, with_rights


@pytest.fixture
def hosted():
    return Hosted()


def refusal_of(call, *arguments, **options):
    with pytest.raises(MessageRefused) as refused:
        call(*arguments, **options)
    return refused.value.refusal, str(refused.value)


# Start.


def test_whoever_proposes_a_run_has_accepted_it(hosted):
    facts = hosted.propose("ann")
    assert (facts.name, facts.starter, facts.state) == ("first", "ann", "waiting")
    assert [(each.party, each.choice) for each in facts.decisions] == [("ann", "accepted")]


def test_a_run_is_running_once_all_have_accepted_it(hosted):
    hosted.propose("ann")
    assert hosted.decide("bob", "accepted").state == "waiting"
    assert hosted.decide("cid", "accepted").state == "running"


def test_to_join_a_run_with_the_same_settings_is_to_accept_it(hosted):
    hosted.propose("ann")
    hosted.propose("bob")
    assert hosted.propose("cid").state == "running"
    assert hosted.host.run("first").starter == "ann"


def test_the_same_proposal_twice_changes_nothing(hosted):
    before = hosted.propose("ann")
    version = hosted.host.version
    assert hosted.propose("ann") == before
    assert hosted.host.version == version


def test_other_settings_under_the_same_name_are_refused_with_both_values(hosted):
    hosted.propose("ann")
    refusal, text = refusal_of(hosted.propose, "bob", run_of(epochs=20))
    assert refusal is Refusal.MISMATCH
    assert "training.epochs is 20 at party 'bob', 3 when run 'first' began; give the run a new name" in text


def test_another_federation_is_refused_with_both_values(hosted):
    other = FederationSettings(name="shop", parties=("ann", "bob", "zed"))
    refusal, text = refusal_of(hosted.propose, "ann", run_of(federation=other))
    assert refusal is Refusal.MISMATCH
    assert 'parties is ["ann", "bob", "zed"] at party \'ann\', ["ann", "bob", "cid"] at the server' in text


def test_only_parties_with_the_right_may_start_runs():
    hosted = Hosted(with_rights("ann"))
    refusal, text = refusal_of(hosted.propose, "bob")
    assert refusal is Refusal.GAP
    assert "ann may start runs ([rights] in federation.toml), party 'bob' may not" in text
    hosted.propose("ann")
    assert hosted.propose("bob").decisions[1].choice == "accepted"


def test_where_nobody_has_the_right_nobody_may_start_runs():
    refusal, text = refusal_of(Hosted(with_rights()).propose, "ann")
    assert refusal is Refusal.GAP
    assert "nobody may start runs" in text


def test_settings_that_are_none_are_refused(hosted):
    assert refusal_of(hosted.host.propose, "ann", Proposal(b"{}"))[0] is Refusal.INVALID


def test_a_proposal_without_its_starter_s_signature_is_refused_where_lines_are_secure():
    authority = Authority("shop")
    issued = {name: authority.issue("party", name) for name in ("ann", "bob", "cid")}
    issued["server"] = authority.issue("server", "server")
    keys = {name: fingerprint(x509.load_pem_x509_certificate(each.certificate)) for name, each in issued.items()}
    federation = FederationSettings(name="shop", parties=("ann", "bob", "cid"), members=keys)
    hosted = Hosted(federation, authority=authority.certificate)
    run = run_of(federation=federation)
    refusal, text = refusal_of(hosted.propose, "ann", run)
    assert (refusal, "has not been started yet" in text) == (Refusal.GAP, True)
    assert refusal_of(hosted.propose, "ann", run, issued["bob"])[0] is Refusal.UNAUTHENTICATED
    assert hosted.host.names == ()
    assert hosted.propose("ann", run, issued["ann"]).starter == "ann"
    assert hosted.propose("bob", run).decision_of("bob").choice == "accepted", "whoever joins need not sign"


def test_a_name_that_differs_by_capital_letters_alone_is_refused(hosted):
    """On some disks its folder would be that of the other run."""
    hosted.propose("ann", run_of("first"))
    refusal, text = refusal_of(hosted.propose, "ann", run_of("First"))
    assert (refusal, hosted.host.names) == (Refusal.MISMATCH, ("first",))
    assert "there is a run 'first', and 'First' differs from it by capital letters alone" in text


def test_there_is_a_largest_number_of_open_runs(hosted, monkeypatch):
    monkeypatch.setattr(hosts, "_MOST_OPEN", 2)
    hosted.propose("ann", run_of("one"))
    hosted.propose("ann", run_of("two"))
    refusal, text = refusal_of(hosted.propose, "ann", run_of("three"))
    assert refusal is Refusal.TOO_LARGE
    assert "fdml runs stop" in text
    hosted.decide("bob", "refused", run_of("one"))
    assert hosted.propose("ann", run_of("three")).state == "waiting"


# Decisions.


def test_a_refusal_ends_the_run_for_all_and_names_party_and_rule(hosted):
    hosted.propose("ann")
    facts = hosted.decide("bob", "refused", rule="guard.total_epsilon")
    assert (facts.state, facts.ended_by, facts.ended_reason) == ("refused", "bob", "rule guard.total_epsilon")
    refusal, text = refusal_of(hosted.host.open_run, "ann", "first")
    assert refusal is Refusal.NO_RUN
    assert "run 'first' was refused by bob (rule guard.total_epsilon)" in text
    assert refusal_of(hosted.decide, "cid", "accepted")[0] is Refusal.NO_RUN
    assert refusal_of(hosted.propose, "cid")[0] is Refusal.NO_RUN


def test_who_waits_for_a_person_may_accept_or_refuse_later(hosted):
    hosted.propose("ann")
    facts = hosted.decide("bob", "waits", rule="policy.hours")
    assert facts.decision_of("bob").rule == "policy.hours"
    hosted.decide("cid", "accepted")
    assert hosted.decide("bob", "accepted").state == "running"


def test_any_party_may_stop_a_run(hosted):
    hosted.accept_all()
    facts = hosted.decide("cid", "stopped", reason="wrong file")
    assert (facts.state, facts.ended_by, facts.ended_reason) == ("stopped", "cid", "wrong file")
    assert "was stopped by cid (wrong file)" in refusal_of(hosted.host.open_run, "ann", "first")[1]


def test_what_was_accepted_is_not_refused_later_but_stopped(hosted):
    hosted.accept_all()
    refusal, text = refusal_of(hosted.decide, "bob", "refused")
    assert refusal is Refusal.CONFLICT
    assert "fdml runs stop first" in text


def test_a_decision_is_on_settings_not_on_a_name(hosted):
    hosted.propose("ann")
    refusal, text = refusal_of(hosted.decide, "bob", "accepted", run=run_of(epochs=20))
    assert refusal is Refusal.MISMATCH
    assert "fdml runs show first" in text


def test_the_same_decision_twice_changes_nothing(hosted):
    hosted.propose("ann")
    first = hosted.decide("bob", "waits", rule="policy.hours")
    version = hosted.host.version
    hosted.now.seconds += 5
    assert hosted.decide("bob", "waits", rule="policy.hours") == first
    assert hosted.host.version == version


def test_a_decision_on_an_unknown_run_is_refused(hosted):
    refusal, text = refusal_of(hosted.decide, "bob", "accepted")
    assert refusal is Refusal.NO_RUN
    assert "there is no run 'first' at this server" in text


# Sessions.


def test_sessions_open_only_once_all_have_accepted(hosted):
    hosted.propose("ann")
    refusal, text = refusal_of(hosted.host.open_run, "ann", "first")
    assert refusal is Refusal.GAP
    assert "waits for bob, cid to accept it" in text
    hosted.decide("bob", "accepted")
    hosted.decide("cid", "accepted")
    assert hosted.host.open_run("ann", "first").settings == run_of()


def test_a_finished_run_stays_and_can_be_opened_by_who_does_not_know_yet(hosted):
    hosted.accept_all()
    hosted.host.finish("first")
    hosted.host.finish("first")
    assert hosted.host.run("first").state == "finished"
    assert hosted.host.open_run("bob", "first").name == "first"
    assert hosted.propose("bob").state == "finished"
    assert refusal_of(hosted.decide, "bob", "stopped")[0] is Refusal.NO_RUN


# The list.


def test_runs_are_listed_in_the_order_in_which_they_were_proposed(hosted):
    for name in ("zebra", "ape", "cat"):
        hosted.propose("ann", run_of(name))
        hosted.now.seconds += 1
    hosted.decide("bob", "refused", run_of("ape"))
    assert [each.name for each in hosted.host.listing(RunQuery()).runs] == ["zebra", "ape", "cat"]
    assert [each.name for each in hosted.host.listing(RunQuery(open_only=True)).runs] == ["zebra", "cat"]
    assert [each.name for each in hosted.host.listing(RunQuery(run="ape")).runs] == ["ape"]
    assert hosted.host.listing(RunQuery(run="none")).runs == ()


def test_the_version_changes_with_every_change(hosted):
    seen = [hosted.host.version]
    hosted.propose("ann")
    seen.append(hosted.host.version)
    hosted.decide("bob", "accepted")
    seen.append(hosted.host.version)
    hosted.host.watches("bob")
    seen.append(hosted.host.version)
    hosted.restart()
    seen.append(hosted.host.version)
    assert len(set(seen)) == len(seen)


def test_who_stands_by_is_listed_while_it_asks(hosted):
    hosted.host.watches("bob")
    assert hosted.host.listing(RunQuery()).here == ("bob",)
    hosted.now.seconds += 31
    assert hosted.host.listing(RunQuery()).here == ()


# Restarts.


def test_a_server_that_is_started_again_knows_all_runs(hosted):
    hosted.accept_all()
    hosted.propose("ann", run_of("second"))
    hosted.decide("bob", "waits", run_of("second"), rule="policy.hours")
    hosted.propose("ann", run_of("third"))
    hosted.decide("bob", "stopped", run_of("third"), reason="no")
    before = hosted.host.listing(RunQuery()).runs
    hosted.restart()
    assert hosted.host.listing(RunQuery()).runs == before
    assert {each.name: each.state for each in before} == {"first": "running", "second": "waiting", "third": "stopped"}


def test_what_the_disk_does_not_take_has_not_been_said(hosted):
    hosted.propose("ann")

    def full(_):
        raise OSError("No space left on device")

    hosted.store.save = full
    with pytest.raises(OSError, match="No space"):
        hosted.decide("bob", "refused")
    assert hosted.host.run("first").state == "waiting"


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"layout": "fdml hosted run 9"}'])
def test_a_damaged_record_is_named(raw):
    with pytest.raises(StateCorrupt, match="'runs/first'"):
        HostedRun.from_json(raw, "runs/first")


# One run alone.


def test_a_run_of_the_operator_needs_no_decisions():
    hosted = Hosted(only=run_of())
    assert hosted.host.open_run("bob", "first").state == "running"
    assert hosted.propose("bob").state == "running"


def test_beside_a_run_of_the_operator_there_is_no_other():
    hosted = Hosted(only=run_of())
    for call in (lambda: hosted.propose("ann", run_of("other")), lambda: hosted.host.open_run("ann", "other")):
        refusal, text = refusal_of(call)
        assert refusal is Refusal.NO_RUN
        assert "this server has run 'first' alone, not 'other'" in text


def test_other_settings_than_the_operator_s_are_refused_with_both_values():
    hosted = Hosted(only=run_of())
    refusal, text = refusal_of(hosted.propose, "bob", run_of(epochs=20))
    assert refusal is Refusal.MISMATCH
    assert "training.epochs is 20 at party 'bob', 3 when run 'first' began" in text


def test_a_proposal_is_kept_as_it_was_signed():
    run = run_of()
    proposal = make_proposal(run, "ann", None)
    hosted = Hosted(FEDERATION)
    hosted.host.propose("ann", proposal)
    hosted.restart()
    assert hosted.host.run("first").proposal == proposal


def test_those_who_wait_are_told_who_would_join_with_other_settings(hosted):
    hosted.propose("ann")
    before = hosted.host.version
    for _ in range(2):
        with pytest.raises(MessageRefused, match=r"training\.epochs is 4 at party 'bob', 3 when run 'first' began"):
            hosted.propose("bob", run_of(epochs=4))
    assert hosted.host.version == before + 1, "the same again is no change"
    facts = hosted.propose("ann")
    assert facts.state == "waiting"
    assert "training.epochs is 4 at party 'bob', 3 when" in facts.refused_for("bob")
    assert facts == hosted.host.listing(RunQuery()).runs[0]
    assert not facts.refused_for("cid")
    assert "training.epochs" not in hosted.store.files["first"].decode().replace('"epochs"', ""), "it is not stored"
    facts = hosted.propose("bob")
    assert not facts.refused_for("bob")
    assert facts.decision_of("bob").choice == "accepted"


def test_another_federation_is_told_to_those_who_wait_too(hosted):
    hosted.propose("ann")
    other = FederationSettings(name="shop", server="elsewhere:1", parties=("ann", "bob", "cid"))
    with pytest.raises(MessageRefused, match="server"):
        hosted.propose("cid", run_of(federation=other))
    assert "elsewhere:1" in hosted.host.listing(RunQuery()).runs[0].refused_for("cid")
