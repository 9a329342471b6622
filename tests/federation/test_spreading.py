"""Runs of standing parties without a server: every party hears of them, and of what every other one says to them."""

import pytest

from fdml.federation.runs import decide, listing, show, start, wait_for
from fdml.federation.spreading import tell_of
from fdml.protocol.run_messages import DIFFERS, PartyDecision, RunDecision
from tests.federation.homes import facts_of, home_of, write_homes
from tests.federation.standing_mesh import StandingMesh
from tests.transport.served import until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr("fdml.federation.up._LOOK_SECONDS", 0.02)
    monkeypatch.setattr("fdml.federation.spreading._WAIT_SECONDS", 0.1)
    monkeypatch.setattr("fdml.federation.spreading._PAUSE", 0.1)


@pytest.fixture
def mesh(tmp_path):
    with StandingMesh(tmp_path / "mesh") as found:
        found.up(*found.parties)
        until(lambda: all(is_up(found, name) for name in found.parties), "all sessions")
        yield found


def is_up(mesh, name):
    return f"party {name!r} stands by for runs at" in " ".join(mesh.told(name))


def states(mesh, name="first", parties=None):
    """How a run stands at every party."""
    found = {}
    for party in parties or mesh.parties:
        facts = [each for each in listing(mesh.home(party)).runs if each.name == name]
        found[party] = facts[0].state if facts else ""
    return found


def decisions(mesh, party, name="first"):
    return {each.party: each.choice for each in show(mesh.home(party), name).decisions}


def test_a_run_is_known_to_all_with_the_decisions_of_all(mesh):
    start(mesh.home("ann"), mesh.run_toml)
    wanted = {"ann": "accepted", "bob": "waits", "cid": "waits"}
    until(lambda: all(state == "waiting" for state in states(mesh).values()), "the run at all parties")
    until(lambda: all(decisions(mesh, party) == wanted for party in mesh.parties), "the decisions at all parties")
    assert {show(mesh.home(party), "first").starter for party in mesh.parties} == {"ann"}
    assert set(listing(mesh.home("cid")).here) == set(mesh.parties)


def test_a_refusal_ends_the_run_for_all_with_its_reason(mesh):
    start(mesh.home("ann"), mesh.run_toml)
    until(lambda: states(mesh)["bob"] == "waiting", "the run at bob")
    decide(mesh.home("bob"), "first", "refused", "not before Monday")
    until(lambda: set(states(mesh).values()) == {"refused"}, "the refusal at all parties")
    found = show(mesh.home("cid"), "first")
    assert (found.ended_by, found.ended_reason) == ("bob", "not before Monday")


def test_a_party_that_comes_later_hears_of_the_run_and_a_stop_reaches_it_too(mesh):
    mesh.down("cid")
    start(mesh.home("ann"), mesh.run_toml)
    until(lambda: any("no party 'cid' at" in text for text in mesh.told("ann")), "cid to be missed")
    mesh.up("cid")
    until(lambda: is_up(mesh, "cid") and decisions(mesh, "ann").get("cid") == "waits", "cid's decision at ann")
    decide(mesh.home("ann"), "first", "stopped")
    until(lambda: set(states(mesh).values()) == {"stopped"}, "the stop at all parties")


def test_two_runs_of_one_name_with_other_settings_are_told_of_at_both_and_neither_begins(mesh, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(mesh.run_toml.read_text().replace("epochs = 2", "epochs = 3"))
    mesh.down("bob")
    start(mesh.home("ann"), mesh.run_toml)
    mesh.down("ann")
    mesh.up("bob")
    until(lambda: is_up(mesh, "bob"), "bob")
    start(mesh.home("bob"), other)
    mesh.up("ann")
    for party, theirs in (("ann", "bob"), ("bob", "ann")):
        wanted = f"run 'first' at party {theirs!r}"
        until(lambda party=party, wanted=wanted: any(wanted in text for text in mesh.told(party)), "both to be told")
    assert states(mesh, parties=("ann", "bob")) == {"ann": "waiting", "bob": "waiting"}


def test_a_run_that_all_accept_is_trained_at_all_parties(tmp_path):
    with StandingMesh(tmp_path / "mesh", party=dict.fromkeys(("ann", "bob", "cid"), POLICY), hidden="cid") as mesh:
        mesh.up(*mesh.parties)
        until(lambda: all(is_up(mesh, name) for name in mesh.parties), "all sessions")
        start(mesh.home("ann"), mesh.run_toml)
        (facts,) = wait_for(mesh.home("ann"), ["first"], seconds=60.0, on_change=lambda _: None)
        assert facts.state == "finished"
        until(lambda: set(states(mesh).values()) == {"finished"}, "the end at all parties")
        for party in mesh.parties:
            until(lambda party=party: (mesh.folder / party / "runs" / "first" / "model").is_dir(), "the model")


POLICY = '[policy]\naccept = "policy"\n'


class Told:
    """Notes what a party is told."""

    def __init__(self):
        self.calls = []

    def propose(self, proposal):
        self.calls.append(proposal)

    def decide(self, decision):
        self.calls.append(decision)


@pytest.fixture
def home(tmp_path):
    return home_of(write_homes(tmp_path), "ann")


def said(party, choice, rule="", reason=""):
    return PartyDecision(party, choice, rule, reason)


def test_a_run_that_is_not_there_is_proposed_by_its_starter_alone_and_while_it_is_open(home):
    told, own = Told(), facts_of(home)
    tell_of(own, None, "bob", told)
    tell_of(facts_of(home, state="stopped"), None, "ann", told)
    assert told.calls == []
    tell_of(own, None, "ann", told)
    assert told.calls == [own.proposal]


def test_a_decision_is_told_once_and_only_the_own_one(home):
    told, own = Told(), facts_of(home, decisions=(said("ann", "accepted"), said("bob", "waits", "policy.hours")))
    tell_of(own, facts_of(home, decisions=(said("bob", "accepted"),)), "bob", told)
    (decision,) = told.calls
    assert isinstance(decision, RunDecision)
    assert (decision.run, decision.choice, decision.rule) == ("first", "waits", "policy.hours")
    tell_of(own, facts_of(home, decisions=own.decisions), "bob", told)
    tell_of(own, facts_of(home), "cid", told)
    assert told.calls == [decision]


def test_what_follows_from_a_difference_and_what_comes_too_late_is_not_told(home):
    told = Told()
    tell_of(facts_of(home, decisions=(said("bob", "waits", DIFFERS),)), facts_of(home), "bob", told)
    tell_of(facts_of(home, decisions=(said("bob", "stopped"),)), facts_of(home, state="finished"), "bob", told)
    assert told.calls == []
