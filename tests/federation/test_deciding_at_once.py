"""Decisions that are made at once, by stale lists and by what a server says that lies: no total is overspent."""

import contextlib
import threading
from dataclasses import replace

from fdml.federation.deciding import Decider
from fdml.federation.run_folder import MODEL, RUNS
from fdml.party.checkpoint import CheckpointStore, FinishedModel
from fdml.storage.disk import FolderDisk
from tests.federation.homes import decider_of, facts_of, home_of, run_of, write_homes

POLICY = '[policy]\naccept = "policy"\ntotal_releases = 7\n'
"""Two runs of three releases each."""


def home(tmp_path):
    return home_of(write_homes(tmp_path, party=POLICY))


def proposed(own, *names):
    return [facts_of(own, run_of(own, name)) for name in names]


def choices(own, *names):
    return [decider_of(own).decide(facts).choice for facts in proposed(own, *names)]


def test_two_processes_that_decide_at_once_do_not_overspend_together(tmp_path, monkeypatch):
    """Each has checked before the other has written, unless they take turns."""
    own, both = home(tmp_path), threading.Barrier(2)
    assert choices(own, "one") == ["accepted"]
    answer = Decider.answer

    def slow(self, *arguments):
        found = answer(self, *arguments)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        return found

    monkeypatch.setattr(Decider, "answer", slow)
    made = []
    threads = [
        threading.Thread(target=lambda each=each: made.append(decider_of(own).decide(each).choice))
        for each in proposed(own, "two", "three")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == ["accepted", "refused"]


def test_an_accepted_run_counts_whatever_the_server_s_list_has(tmp_path):
    """It may have been started since the list was made, or the server may leave it out."""
    own = home(tmp_path)
    assert choices(own, "one", "two", "three") == ["accepted", "accepted", "refused"]


def test_a_run_that_somebody_has_ended_is_over_for_good_and_counts_no_more(tmp_path):
    own = home(tmp_path)
    choices(own, "one", "two")
    first = proposed(own, "one")[0]
    ended = replace(first, state="refused", ended_by="cid", ended_reason="rule policy.hours")
    for _ in range(2):
        decider_of(own).note_ends([ended, *proposed(own, "two")])
    last = own.log.read()[-1].decision
    assert (last.run, last.choice, last.by, last.rule) == ("one", "stopped", "server", "refused")
    assert last.reason == "refused by cid: rule policy.hours"
    assert len(own.log.read()) == 3
    assert choices(own, "three") == ["accepted"]
    assert decider_of(own).decide(replace(first, state="running")).choice == "stopped"


def test_that_a_run_is_finished_is_not_believed_before_it_is_so_here(tmp_path):
    own = home(tmp_path)
    choices(own, "one", "two")
    decider_of(own).note_ends([replace(each, state="finished") for each in proposed(own, "one", "two")])
    assert choices(own, "three") == ["refused"]


def test_runs_that_are_finished_or_given_up_here_count_with_what_they_have_released(tmp_path):
    own = home(tmp_path)
    choices(own, "one", "two")
    CheckpointStore(FolderDisk(own.folder / RUNS / "one" / "state")).save_result(
        FinishedModel({}, b"model", reported=True)
    )
    assert choices(own, "three") == ["accepted"]
    (own.folder / RUNS / "two" / MODEL).mkdir()
    assert choices(own, "four") == ["accepted"]
    (own.folder / RUNS / "three" / "forgotten").touch()
    assert choices(own, "five") == ["accepted"]
