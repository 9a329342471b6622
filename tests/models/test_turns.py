"""Turns among processes: what two do under one name, they do one after the other."""

import multiprocessing
import select
import signal
import socket
import time
from contextlib import suppress

import pytest

from fdml.models.kernels.turns import Turns

FORK = multiprocessing.get_context("fork")
SECONDS = 60.0


def hold(turns, name, line):
    """Say that the turn has come, and keep it until something is said."""
    with turns.of(name):
        line.send(b"held")
        select.select([line], [], [], SECONDS)


class Holder:
    """A process that wants the turn of a name."""

    def __init__(self, path, name):
        self._line, theirs = socket.socketpair()
        self.process = FORK.Process(target=hold, args=(Turns(path), name, theirs))
        self.process.start()
        theirs.close()

    def holds(self, seconds=SECONDS):
        return bool(select.select([self._line], [], [], seconds)[0])

    def end(self):
        with suppress(OSError):  # it may have been killed
            self._line.send(b"go on")
        self._line.close()
        self.process.join(SECONDS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "lock"


@pytest.fixture
def start(path):
    """Starts such processes; all of them end with the test."""
    started = []

    def start_one(name):
        started.append(Holder(path, name))
        return started[-1]

    yield start_one
    for holder in started:
        holder.end()
        assert holder.process.exitcode in (0, -signal.SIGKILL)


@pytest.fixture
def first(start):
    """Another process has the turn of "predict"."""
    holder = start("predict")
    assert holder.holds()
    return holder


def test_a_second_process_waits_until_the_first_is_done(first, start):
    second = start("predict")
    assert not second.holds(0.2)
    first.end()
    assert second.holds()


def test_another_name_does_not_wait(first, start):
    assert start("train").holds()


def test_the_turn_of_a_process_that_is_killed_ends_with_it(first, start):
    second = start("predict")
    first.process.kill()
    assert second.holds()


def test_a_fork_of_the_holder_holds_nothing(path, start):
    with Turns(path).of("predict"):
        copy = start("another")
        assert copy.holds()
    assert start("predict").holds()


def test_an_inner_turn_leaves_the_outer_one_held(path, start):
    turns = Turns(path)
    with turns.of("train"):
        with turns.of("clip"):
            pass
        second = start("train")
        assert not second.holds(0.2)
    assert second.holds()


def test_an_error_ends_the_turn(path, start):
    with suppress(ZeroDivisionError), Turns(path).of("predict"):
        _ = 1 / 0
    assert start("predict").holds()


def test_who_has_waited_the_longest_time_goes_on_without_its_turn(path, first):
    before = time.monotonic()
    with Turns(path, longest_wait=0.1).of("predict"):
        assert time.monotonic() - before >= 0.1


def test_where_no_file_can_be_made_nobody_waits(tmp_path, first):
    (tmp_path / "file").write_text("no folder")
    with Turns(tmp_path / "file" / "lock").of("predict"):
        pass


def test_a_file_system_without_locks_is_none_to_wait_on(path, monkeypatch):
    def without_locks(*_):
        raise OSError("no locks here")

    monkeypatch.setattr("fdml.models.kernels.turns.fcntl.lockf", without_locks)
    with Turns(path).of("predict"):
        pass
