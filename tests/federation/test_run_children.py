"""A party's processes: started when wanted, again when they die, never twice, and ended when a run is stopped."""

import signal

import pytest

from fdml.errors import SettingsError
from fdml.federation.run_children import LONGEST_PAUSE, RunChildren


class FakeProcess:
    def __init__(self):
        self.code = None
        self.signals = []

    def send(self, number):
        self.signals.append(number)

    def failure(self):
        return "out of memory"


class Processes:
    """Processes that are never started, and a clock that is moved by hand."""

    def __init__(self):
        self.now = 0.0
        self.started = []
        self.in_use = set()
        self.remarks = []
        self.children = RunChildren(self._start, self.in_use.__contains__, lambda: self.now, self.remarks.append)

    def _start(self, name):
        process = FakeProcess()
        self.started.append((name, process))
        return process

    def look(self, *wanted, stopped=(), after=0.0):
        self.now += after
        self.children.look(wanted, stopped)

    @property
    def names(self):
        return [name for name, _ in self.started]

    def last(self):
        return self.started[-1][1]


@pytest.fixture
def party():
    return Processes()


def test_a_wanted_run_has_one_process(party):
    party.look("first")
    party.look("first", after=5)
    party.look("first", "second")
    assert party.names == ["first", "second"]
    assert party.children.running == {"first", "second"}


def test_a_process_that_has_died_is_started_again_after_a_pause(party):
    party.look("first")
    party.last().code = 1
    party.look("first")
    assert party.names == ["first"]
    party.look("first", after=1.0)
    assert party.names == ["first", "first"]
    assert any("out of memory" in text and "started again in 1 s" in text for text in party.remarks)


def test_pauses_grow_up_to_a_longest_one(party):
    pauses = []
    for _ in range(12):
        party.look("first")
        began = party.now
        party.last().code = -9
        party.look("first")
        while party.last().code is not None:
            party.look("first", after=0.5)
        pauses.append(party.now - began)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == LONGEST_PAUSE


def test_after_a_long_life_the_pause_is_short_again(party):
    for _ in range(5):
        party.look("first")
        party.last().code = 1
        party.look("first")
        party.now += LONGEST_PAUSE
    party.look("first")
    party.last().code = 1
    party.look("first", after=1000)
    count = len(party.names)
    party.look("first", after=1.0)
    assert len(party.names) == count + 1


def test_a_process_that_has_done_its_work_is_not_started_again(party):
    party.look("first")
    party.last().code = 0
    for _ in range(3):
        party.look("first", after=100)
    assert party.names == ["first"]
    assert party.remarks[-1] == "run 'first' is done"


def test_a_process_of_an_earlier_start_is_waited_for(party):
    party.in_use.add("first")
    for _ in range(5):
        party.look("first", after=2)
    assert party.names == []
    assert party.remarks == ["run 'first' goes on in another process, which is waited for"]
    party.in_use.clear()
    party.look("first", after=2)
    assert party.names == ["first"]


def test_the_process_of_a_stopped_run_is_asked_to_end_once_and_killed_in_the_end(party):
    party.look("first")
    for _ in range(3):
        party.look(stopped=["first"], after=1)
    assert party.last().signals == [signal.SIGINT]
    party.look(stopped=["first"], after=20)
    assert party.last().signals == [signal.SIGINT, signal.SIGKILL]
    party.last().code = -9
    party.look(stopped=["first"])
    party.look(stopped=["first"], after=1000)
    assert party.names == ["first"]


def test_a_process_of_a_run_that_is_over_ends_by_itself(party):
    party.look("first")
    party.look(after=100)
    assert party.last().signals == []
    assert party.children.running == {"first"}
    party.last().code = 0
    party.look()
    assert party.children.running == frozenset()


def test_the_same_failure_is_told_once_for_each_pause(party):
    for _ in range(20):
        party.look("first")
        party.last().code = 1
        party.look("first")
        party.now += LONGEST_PAUSE
    assert len(party.remarks) <= 8


def test_all_processes_are_sent_a_signal_at_the_end(party):
    party.look("first", "second")
    assert party.children.are_running()
    party.children.stop()
    assert [process.signals for _, process in party.started] == [[signal.SIGINT]] * 2
    for _, process in party.started:
        process.code = 130
    assert not party.children.are_running()


def test_a_process_that_was_asked_to_end_is_not_said_to_be_started_again(party):
    party.look("first")
    party.look(stopped=["first"])
    party.last().code = -2
    party.look(stopped=["first"], after=30)
    assert party.remarks == ["run 'first' is not under way here any more"]
    assert party.names == ["first"]


def test_what_came_of_a_run_is_said_when_it_is_done(party):
    party.children = RunChildren(
        party._start,
        party.in_use.__contains__,
        lambda: party.now,
        party.remarks.append,
        lambda name: f": AUC of {name}",
    )
    party.look("first")
    party.last().code = 0
    party.look("first")
    assert party.remarks == ["run 'first' is done: AUC of first"]


def test_a_run_that_cannot_be_started_is_told_once_and_the_others_go_on(party):
    def start(name):
        if name == "first":
            raise SettingsError("its folder is gone")
        return FakeProcess()

    children = RunChildren(start, lambda _: False, lambda: party.now, party.remarks.append)
    children.look(["first", "second"])
    party.now += LONGEST_PAUSE
    children.look(["first", "second"])
    assert children.running == {"second"}
    assert party.remarks == ["run 'first' cannot be started: its folder is gone"]
