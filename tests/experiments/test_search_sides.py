"""A search's runs at a real server, where the other parties decide as this test says."""

import threading

import pytest

from fdml.experiments.search import End, run_search
from fdml.experiments.search_settings import read_search
from fdml.experiments.search_sides import OneMachine, StandingSides
from fdml.federation.run_folder import RUNS
from fdml.federation.runs import decide, show
from fdml.federation.up import LOG
from tests.federation.served_federation import ServedFederation

TUNE = 'name = "rates"\n[search]\ntraining.epochs = [2, 3]\nmodels.ann.l2 = [0.5]\n'


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """A search asks for news of its run every two seconds, which nobody brings here."""
    monkeypatch.setattr("fdml.experiments.search_sides._LOOK_SECONDS", 0.05)


@pytest.fixture
def served(tmp_path):
    with ServedFederation(tmp_path / "federation") as server:
        (server.folder / "run.toml").write_text('label_party = "ann"\n[training]\nepochs = 1\n')
        (server.folder / "tune.toml").write_text(TUNE)
        yield server


def candidates(served):
    return read_search(served.folder / "tune.toml").candidates


def sides(served, accept_seconds=0.2, run_seconds=None):
    return StandingSides(served.home("ann"), accept_seconds=accept_seconds, run_seconds=run_seconds)


def later(served, choice, parties=("bob", "cid"), name="rates-1", reason=""):
    """Let the other parties decide once the run is there."""

    def work():
        for party in parties:
            home = served.home(party)
            while not any(each.name == name for each in served_runs(home)):
                pass
            decide(home, name, choice, reason)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def served_runs(home):
    with home.client() as client:
        found = client.run("rates-1")
    return [] if found is None else [found]


def accepted_by_all(served):
    """A run that all have accepted and nobody trains."""
    first = candidates(served)[0]
    assert sides(served).carry_out(first).state == "waiting"
    for party in ("bob", "cid"):
        decide(served.home(party), "rates-1", "accepted")
    return first


def test_a_run_that_the_others_keep_waiting_is_left_for_later(served):
    end = sides(served).carry_out(candidates(served)[0])
    assert end == End("waiting", "for bob, cid")
    assert show(served.home("bob"), "rates-1").state == "waiting"


def test_a_run_that_another_party_refuses_is_told_with_its_reason(served):
    thread = later(served, "refused", ("bob",), reason="not this month")
    end = sides(served, accept_seconds=30.0).carry_out(candidates(served)[0])
    thread.join(30)
    assert end == End("refused", "by bob: not this month")


def test_what_was_refused_before_is_not_proposed_again(served):
    first = candidates(served)[0]
    sides(served).carry_out(first)
    decide(served.home("cid"), "rates-1", "refused", "no")
    assert sides(served).carry_out(first) == End("refused", "by cid: no")


def test_a_run_that_another_party_stops_is_no_failure_of_its_settings(served):
    first = accepted_by_all(served)
    decide(served.home("bob"), "rates-1", "stopped", "wrong file")
    assert sides(served).carry_out(first) == End("stopped", "by bob: wrong file")


def test_a_run_that_takes_too_long_is_stopped_for_all(served):
    first = accepted_by_all(served)
    end = sides(served, run_seconds=0.1).carry_out(first)
    assert end == End("failed", "not over after run_seconds = 0.1")
    assert show(served.home("bob"), "rates-1").state == "stopped"
    assert sides(served).carry_out(first) == end, "also when the search is started again"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["fdml: a prediction is 1e9: training has diverged; lower it"], "a prediction is 1e9: training has diverged"),
        (["fdml: there is no file 'data.csv'"] * 3, "there is no file 'data.csv'"),
    ],
)
def test_a_run_that_would_fail_again_and_again_is_stopped(served, lines, reason):
    first = accepted_by_all(served)
    (served.folder / "ann" / RUNS / "rates-1" / LOG).write_text("\n".join(["ann: 1 of 2 epochs", *lines]) + "\n")
    end = sides(served).carry_out(first)
    assert end.state == "failed"
    assert end.reason.startswith(reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        ["fdml: there is no file 'data.csv'"] * 2,
        ["fdml: party 'ann' waited 60 s for bob"] * 5,
        ["fdml: one", "fdml: one", "fdml: two"],
        ["ann: training has gone well"] * 3,
    ],
)
def test_a_run_that_may_still_work_is_waited_for(served, lines):
    first = accepted_by_all(served)
    (served.folder / "ann" / RUNS / "rates-1" / LOG).write_text("\n".join(lines) + "\n")
    end = sides(served, run_seconds=1.0).carry_out(first)
    assert end.reason.startswith("not over after"), "it was waited for to the end"


def test_this_party_s_own_model_is_written_before_the_run_is_proposed_and_nowhere_else(served):
    sides(served).carry_out(candidates(served)[0])
    assert '"l2": 0.5' in (served.folder / "ann" / RUNS / "rates-1" / "own.json").read_text()
    assert not (served.folder / "bob" / RUNS).exists()
    assert b"l2" not in show(served.home("bob"), "rates-1").proposal.settings


def test_what_this_party_s_own_total_does_not_allow_is_refused_before_anybody_hears_of_it(served):
    with (served.folder / "ann" / "party.toml").open("a") as file:
        file.write("[policy]\ntotal_releases = 1\n")
    end = sides(served).carry_out(candidates(served)[0])
    assert end.state == "refused"
    assert "policy.total_releases" in end.reason
    assert served_runs(served.home("bob")) == []


def test_a_search_of_which_nothing_has_finished_has_no_best(served):
    search = read_search(served.folder / "tune.toml")
    ended = []
    result = run_search(search, sides(served), ended.append)
    assert [run.end.state for run in result.runs] == ["waiting"] * 2 == [run.end.state for run in ended]
    assert result.best is None
    assert result.spent["ann"].releases == 0


def test_on_one_machine_every_party_has_its_folder_ledger_and_settings(served):
    search = read_search(served.folder / "tune.toml")
    one = OneMachine(search)
    assert set(one.homes) == {"ann", "bob", "cid"}
    assert one.settings("bob").party == "bob"
    assert one.accounts("cid").runs == {}


@pytest.mark.slow
def test_a_side_that_cannot_start_on_one_machine_is_a_failed_run(served, warm_starts):
    search = read_search(served.folder / "tune.toml")
    end = OneMachine(search, plain=True).carry_out(search.candidates[0])
    assert end.state == "failed"
    assert "stopped: " in end.reason
