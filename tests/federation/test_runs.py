"""Runs from a party's side: started, listed, approved, refused, stopped, waited for; and what stands by for them."""

import contextlib
import datetime
import threading
from dataclasses import replace

import pytest

from fdml.errors import (
    MessageRefused,
    PeerTimeout,
    PrivacyBudgetSpent,
    Refusal,
    ServerUnreachable,
    SettingsError,
    StateCorrupt,
)
from fdml.events import Waiting
from fdml.federation import runs
from fdml.federation.accepting import await_acceptance, joining_proposal
from fdml.federation.run_folder import run_names
from fdml.federation.runs import decide, listing, looked_at, show, start, wait_for
from fdml.federation.up import up
from fdml.protocol.signed_proposals import check_proposal, make_proposal
from tests.federation.homes import facts_of, home_of, run_of, write_homes
from tests.federation.served_federation import ServedFederation
from tests.transport.served import SECONDS, free_port, until

POLICY = '[policy]\naccept = "policy"\n'


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """Who stands by looks around every half second, and most tests here wait for that."""
    monkeypatch.setattr("fdml.federation.up._LOOK_SECONDS", 0.02)


@pytest.fixture
def shop(tmp_path):
    with ServedFederation(tmp_path / "shop") as served:
        yield served


def test_a_started_run_is_listed_and_waits_for_the_others(shop):
    ann = shop.home("ann")
    started = start(ann, run_of(ann))
    assert (started.facts.state, started.here) == ("waiting", ())
    assert [each.name for each in listing(shop.home("bob")).runs] == ["first"]
    assert show(shop.home("bob"), "first").starter == "ann"


def test_a_run_has_the_answers_of_those_who_stand_by_as_soon_as_it_is_started(shop):
    ann = shop.home("ann")
    with standing_by(shop, "bob"):
        until(lambda: listing(ann).here == ("bob",), "bob")
        facts = start(ann, run_of(ann)).facts
    assert facts.decision_of("bob").choice == "waits"
    assert facts.decision_of("cid") is None


def test_a_run_toml_is_read_with_the_party_s_federation(shop, tmp_path):
    path = tmp_path / "second.toml"
    path.write_text('name = "second"\nlabel_party = "bob"\n')
    assert start(shop.home("ann"), path).facts.name == "second"


def test_the_same_run_again_changes_nothing(shop):
    ann = shop.home("ann")
    first = start(ann, run_of(ann)).facts
    assert start(ann, run_of(ann)).facts == first
    assert len(ann.log.read()) == 1


def test_other_settings_under_the_same_name_are_refused_at_home(shop):
    ann = shop.home("ann")
    start(ann, run_of(ann))
    with pytest.raises(SettingsError, match=r"training\.epochs is 9 here, 3 when run 'first' began"):
        start(ann, run_of(ann, epochs=9))


def test_other_settings_under_a_name_of_another_party_are_refused_before_anything_is_written(shop):
    """Else this party would keep the name for a run that never begins, and refuse the other's for it."""
    ann, bob = shop.home("ann"), shop.home("bob")
    start(ann, run_of(ann))
    with pytest.raises(SettingsError, match=r"training\.epochs is 9 here, 3 in run 'first' of ann; give it a new name"):
        start(bob, run_of(bob, epochs=9))
    assert (bob.log.read(), run_names(bob.folder)) == ([], [])
    assert decide(bob, "first", "accepted").decision_of("bob").choice == "accepted"


def test_all_who_are_asked_approve_and_the_run_is_under_way(shop):
    ann = shop.home("ann")
    start(ann, run_of(ann))
    assert decide(shop.home("bob"), "first", "accepted").state == "waiting"
    assert decide(shop.home("cid"), "first", "accepted").state == "running"


def test_a_refusal_is_told_with_its_reason(shop):
    ann, bob = shop.home("ann"), shop.home("bob")
    start(ann, run_of(ann))
    facts = decide(bob, "first", "refused", "not before Monday")
    assert (facts.state, facts.ended_by, facts.ended_reason) == ("refused", "bob", "not before Monday")
    with pytest.raises(SettingsError, match="run 'first' is refused already"):
        decide(shop.home("cid"), "first", "accepted")


def test_what_was_accepted_is_stopped_not_refused(shop):
    ann, bob = shop.home("ann"), shop.home("bob")
    start(ann, run_of(ann))
    decide(bob, "first", "accepted")
    with pytest.raises(SettingsError, match="fdml runs stop first"):
        decide(bob, "first", "refused")
    assert decide(bob, "first", "stopped", "wrong file").state == "stopped"
    assert [each.decision.choice for each in bob.log.read()] == ["accepted", "stopped"]


def test_an_unknown_run_is_told(shop):
    with pytest.raises(SettingsError, match="there is no run 'none' at the server"):
        show(shop.home("ann"), "none")


def test_settings_that_a_server_has_made_up_are_not_shown_to_whoever_decides(tmp_path, monkeypatch):
    """It could show harmless ones, and hand out the starter's own to whoever approves."""
    folder = write_homes(tmp_path, keys=True)
    bob, ann = (home_of(folder, name, plain=False) for name in ("bob", "ann"))
    signed = facts_of(bob, credentials=ann.endpoint.credentials)
    made_up = replace(
        signed, proposal=replace(signed.proposal, settings=make_proposal(run_of(bob, epochs=1), "ann", None).settings)
    )
    monkeypatch.setattr(runs, "show", lambda *_: made_up)
    with pytest.raises(MessageRefused, match=r"run 'first' is not what the server says: .* has a wrong signature"):
        looked_at(bob, "first")
    monkeypatch.setattr(runs, "show", lambda *_: signed)
    assert looked_at(bob, "first") == signed


def test_who_has_no_right_is_told_before_anything_is_sent(tmp_path):
    with ServedFederation(tmp_path / "shop", rights='[rights]\nstart = ["ann"]') as shop:
        bob = shop.home("bob")
        with pytest.raises(SettingsError, match="party 'bob' has no right to start runs"):
            start(bob, run_of(bob))
        assert listing(bob).runs == ()


def test_a_run_that_would_overspend_is_not_even_proposed_and_cannot_be_approved(tmp_path):
    guard = '[guard]\nclip = 1.0\nnoise = "gaussian"\nsigma = 1.0\ntotal_epsilon = 0.1\n'
    with ServedFederation(tmp_path / "shop", party=guard) as shop:
        ann = shop.home("ann")
        with pytest.raises(PrivacyBudgetSpent, match=r"refused by guard\.total_epsilon"):
            start(ann, run_of(ann))
        assert listing(ann).runs == ()
        (shop.folder / "ann" / "party.toml").write_text('party = "ann"\nfederation = "../federation.toml"\n')
        start(shop.home("ann"), run_of(ann))
        with pytest.raises(MessageRefused, match=r"cannot be approved: guard\.total_epsilon"):
            decide(shop.home("bob"), "first", "accepted")


def test_waiting_for_runs_tells_every_change_and_ends(shop):
    ann, bob = shop.home("ann"), shop.home("bob")
    start(ann, run_of(ann))
    threading.Timer(0.3, decide, (bob, "first", "refused")).start()
    seen = []
    (facts,) = wait_for(ann, ["first"], seconds=SECONDS, on_change=lambda each: seen.append(each.state))
    assert facts.state == "refused"
    assert seen == ["waiting", "refused"]


def test_a_wait_that_takes_too_long_names_the_run(shop):
    ann = shop.home("ann")
    start(ann, run_of(ann))
    with pytest.raises(PeerTimeout, match="first not over after"):
        wait_for(ann, ["first"], seconds=0.1, on_change=lambda _: None)


def test_a_restarted_server_knows_all_runs(shop):
    ann = shop.home("ann")
    start(ann, run_of(ann))
    shop.stop()
    shop.start()
    assert [(each.name, each.state) for each in listing(ann).runs] == [("first", "waiting")]


# Joining.


def accept(home, run=None, **options):
    """Join a run at the server; gives how it stands, and what was told meanwhile."""
    events, run = [], run or run_of(home)
    facts = await_acceptance(home.endpoint, make_proposal(run, home.name, None), run.parties, events.append, **options)
    return facts, events


def test_whoever_joins_waits_until_all_have(shop):
    ann, found = shop.home("ann"), []
    joining = threading.Thread(target=lambda: found.append(accept(ann)), daemon=True)
    joining.start()
    until(lambda: listing(ann).runs, "the run")
    for name in ("bob", "cid"):
        decide(shop.home(name), "first", "accepted")
    joining.join(SECONDS)
    ((facts, events),) = found
    assert facts.state == "running"
    assert events[0] == Waiting("ann", ("bob", "cid"))


def test_whoever_waits_too_long_is_told_for_whom(shop):
    with pytest.raises(PeerTimeout, match="bob has not accepted the run yet, cid has not"):
        accept(shop.home("ann"), longest=0.2)


def test_a_run_that_waits_for_a_person_says_so(shop):
    ann = shop.home("ann")
    start(ann, run_of(ann))
    stand_by(shop, "bob", lambda: listing(ann).runs[0].decision_of("bob") is not None)
    with pytest.raises(PeerTimeout, match=r"bob waits for a person \(policy\.accept\)"):
        accept(ann, longest=0.2)


def test_a_party_with_other_settings_is_named_to_those_who_wait_for_it(shop):
    ann, bob = shop.home("ann"), shop.home("bob")
    start(ann, run_of(ann))
    with pytest.raises(MessageRefused, match=r"training\.epochs is 9 at party 'bob'"):
        accept(bob, run_of(bob, epochs=9))
    with pytest.raises(PeerTimeout, match=r"bob was refused: training\.epochs is 9 at party 'bob', 3 when run 'first'"):
        accept(ann, longest=0.2)
    decide(bob, "first", "accepted")
    with pytest.raises(PeerTimeout, match=r"\(cid has not accepted the run yet\)"):
        accept(ann, longest=0.2)


def test_only_the_starter_signs_so_that_nobody_else_is_passed_off_as_it(tmp_path):
    """A server that has bob's signature could tell cid, who takes runs of bob alone, that bob has started ann's run."""
    bob = home_of(write_homes(tmp_path, keys=True), "bob", plain=False)
    keys, run = bob.endpoint.credentials, run_of(bob)
    joins, starts = (joining_proposal(run, "bob", starter, keys) for starter in ("ann", "bob"))
    with pytest.raises(MessageRefused, match="said to be started by 'bob', has no certificate"):
        check_proposal(joins, run, "bob", keys.authority)
    check_proposal(starts, run, "bob", keys.authority)


def test_who_may_not_start_runs_waits_for_who_may(tmp_path):
    with ServedFederation(tmp_path / "shop", rights='[rights]\nstart = ["ann"]') as shop:
        with pytest.raises(PeerTimeout, match="run 'first' has not been started yet"):
            accept(shop.home("bob"), longest=0.2)
        start(shop.home("ann"), run_of(shop.home("ann")))
        with pytest.raises(PeerTimeout, match="cid has not accepted"):
            accept(shop.home("bob"), longest=0.2)


def test_whoever_joins_with_other_settings_is_told_both_values(shop):
    ann, bob = shop.home("ann"), shop.home("bob")
    start(ann, run_of(ann))
    with pytest.raises(MessageRefused, match=r"training\.epochs is 9 at party 'bob', 3 when") as refused:
        accept(bob, run_of(bob, epochs=9))
    assert refused.value.refusal is Refusal.MISMATCH


def test_a_server_that_is_not_there_is_waited_for_and_named(tmp_path):
    shop = ServedFederation(tmp_path / "shop")
    shop._port = free_port()
    with pytest.raises(ServerUnreachable, match="no server at"):
        accept(shop.home("ann"), longest=0.3)


# Standing by.


@contextlib.contextmanager
def standing_by(shop, party):
    """Let a party stand by; gives what it says, as it comes."""
    texts, over = [], threading.Event()
    options = {"plain": True, "server": shop.address, "on_event": lambda event: texts.append(event.text)}
    options["is_over"] = over.is_set
    thread = threading.Thread(target=up, args=(shop.folder / party / "party.toml",), kwargs=options, daemon=True)
    thread.start()
    try:
        yield texts
    finally:
        over.set()
        thread.join(SECONDS)
        assert not thread.is_alive()


def stand_by(shop, party, until_then):
    """Let a party stand by until something is true."""
    with standing_by(shop, party) as texts:
        until(until_then, f"what {party} stands by for")
    return texts


def choice_of(shop, party, name="first"):
    decision = show(shop.home("ann"), name).decision_of(party)
    return None if decision is None else decision.choice


def test_a_party_that_stands_by_decides_by_its_policy_and_tells_the_server(tmp_path):
    with ServedFederation(tmp_path / "shop", party=POLICY) as shop:
        ann = shop.home("ann")
        start(ann, run_of(ann))
        texts = stand_by(shop, "bob", lambda: choice_of(shop, "bob") == "accepted")
        assert "run 'first' of ann is accepted" in texts
        assert [each.decision.choice for each in shop.home("bob").log.read()] == ["accepted"]


def test_a_run_that_all_have_accepted_does_not_begin_outside_the_hours(tmp_path):
    later = [datetime.datetime.now() + datetime.timedelta(hours=hours) for hours in (2, 3)]
    with ServedFederation(tmp_path / "shop", party=POLICY) as shop, standing_by(shop, "bob") as texts:
        ann, bob = shop.home("ann"), shop.home("bob")
        start(ann, run_of(ann))
        until(lambda: choice_of(shop, "bob") == "accepted", "bob's decision")
        bob.file.write_text(f'{bob.file.read_text()}hours = ["{later[0]:%H:%M}-{later[1]:%H:%M}"]\n')
        assert decide(shop.home("cid"), "first", "accepted").state == "running"
        until(lambda: any("run 'first' does not begin yet: it is" in text for text in texts), "what bob says")
    assert not any("under way" in text for text in texts)


def test_a_log_that_is_changed_while_a_party_stands_by_is_told_and_decides_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_ANSWER_SECONDS", 0.1)  # bob will not answer
    with ServedFederation(tmp_path / "shop", party=POLICY) as shop, standing_by(shop, "bob") as texts:
        ann, log = shop.home("ann"), shop.home("bob").log.path
        start(ann, run_of(ann, "one"))
        until(lambda: choice_of(shop, "bob", "one") == "accepted", "bob's decision")
        log.write_bytes(log.read_bytes().replace(b'"ann"', b'"eve"') * 2)
        start(ann, run_of(ann, "two"))
        until(lambda: any("of the log of decisions does not hold" in text for text in texts), "what bob says")
        assert choice_of(shop, "bob", "two") is None


def test_who_stands_by_is_listed(shop):
    stand_by(shop, "bob", lambda: listing(shop.home("ann")).here == ("bob",))


@pytest.mark.slow
def test_a_decision_that_the_server_has_not_heard_is_told_by_the_next_start(shop):
    ann, bob = shop.home("ann"), shop.home("bob")
    start(ann, run_of(ann))
    address = shop.address
    shop.stop()
    with pytest.raises(ServerUnreachable):
        decide(bob, "first", "accepted")
    shop.start()
    assert shop.address == address
    decide(bob, "first", "accepted")
    stand_by(shop, "bob", lambda: choice_of(shop, "bob") == "accepted")


def test_a_party_goes_on_standing_by_when_the_server_comes_back(tmp_path):
    with ServedFederation(tmp_path / "shop", party=POLICY) as shop:
        ann = shop.home("ann")

        def restarted():
            if not listing(ann).runs:
                shop.stop()
                shop.start()
                start(ann, run_of(ann))
            return choice_of(shop, "bob") == "accepted"

        texts = stand_by(shop, "bob", restarted)
        assert any("is accepted" in text for text in texts)


def test_a_server_that_is_away_is_told_once_and_so_is_its_return(shop):
    ann = shop.home("ann")
    shop.stop()
    with standing_by(shop, "bob") as texts:
        until(lambda: len(texts) > 1, "what bob says")
        shop.start()
        until(lambda: listing(ann).here == ("bob",), "bob")
        until(lambda: len(texts) > 2, "what bob says")
    assert texts[1].startswith(f"no server at {shop.address} yet: ")
    assert texts[1].endswith("; it is tried again until it answers")
    assert texts[2:] == [f"the server at {shop.address} answers now"]


def test_a_run_that_another_party_ends_is_told_where_it_was_known(tmp_path):
    with ServedFederation(tmp_path / "shop", party=POLICY) as shop:
        ann, cid = shop.home("ann"), shop.home("cid")
        start(ann, run_of(ann))
        with standing_by(shop, "bob") as texts:
            until(lambda: choice_of(shop, "bob") == "accepted", "bob's decision")
            decide(cid, "first", "refused", "not today")
            until(lambda: texts[-1] == "run 'first' was refused by cid (not today)", "what bob says")
        with standing_by(shop, "bob") as later:
            until(lambda: listing(ann).here == ("bob",), "bob")
        assert not any("refused" in text for text in later), "what is long over is not told again"


def test_two_processes_do_not_stand_by_for_one_party(shop):
    def second():
        with pytest.raises(SettingsError, match="another `fdml up` of party 'bob' is running"):
            up(shop.folder / "bob" / "party.toml", plain=True, server=shop.address)
        return True

    stand_by(shop, "bob", lambda: listing(shop.home("ann")).here == ("bob",) and second())


def test_a_log_that_does_not_hold_is_told_before_anything_is_decided(shop):
    bob = shop.home("bob")
    (bob.folder / "decisions").mkdir()
    bob.log.path.write_text("{}\n")
    with pytest.raises(StateCorrupt, match="line 1 of the log of decisions"):
        up(bob.file, plain=True, server=shop.address)
