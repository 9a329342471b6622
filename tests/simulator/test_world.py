from random import Random

import pytest
from simulator.world import Crashed, EventQueue, Link, VirtualDisk


def test_what_is_planned_happens_in_order_of_time_then_of_planning():
    agenda, done = EventQueue(0), []
    for seconds, name in ((2.0, "late"), (1.0, "first"), (1.0, "second")):
        agenda.after(seconds, lambda name=name: done.append((agenda.now, name)))
    while agenda.next():
        pass
    assert done == [(1.0, "first"), (1.0, "second"), (2.0, "late")]


def test_the_trace_tells_two_courses_apart():
    one, other = EventQueue(0), EventQueue(0)
    one.note("a")
    other.note("b")
    assert one.trace_hash() != other.trace_hash()


def outcomes(write, name, torn=()):
    """What is on disk after a crash in `write`, over many seeds."""
    found = set()
    for seed in range(100):
        disk = VirtualDisk(Random(seed), torn)
        disk.append("log", b"old.")
        disk.replace("state.1", b"before")
        disk.arm(0)
        with pytest.raises(Crashed):
            write(disk)
        found.add(disk.read(name))
    return found


def test_an_append_in_a_crash_is_lost_torn_or_whole_but_never_harms_what_was_there():
    found = outcomes(lambda disk: disk.append("log", b"new"), "log")
    assert found == {b"old.", b"old.n", b"old.ne", b"old.new"}


def test_a_replacement_in_a_crash_is_whole_or_not_at_all():
    assert outcomes(lambda disk: disk.replace("state.1", b"after"), "state.1") == {b"before", b"after"}


def test_a_file_of_two_generations_may_be_torn_but_not_its_first_version():
    torn = outcomes(lambda disk: disk.replace("state.1", b"ab"), "state.1", torn=("state",))
    assert torn == {b"before", b"", b"a", b"ab"}
    assert outcomes(lambda disk: disk.replace("state.0", b"ab"), "state.0", torn=("state",)) == {None, b"ab"}


def test_a_removal_and_a_cut_in_a_crash_happened_or_did_not():
    assert outcomes(lambda disk: disk.remove("log"), "log") == {None, b"old."}
    assert outcomes(lambda disk: disk.truncate("log", 1), "log") == {b"o", b"old."}


def test_a_disk_dies_in_the_write_it_was_armed_for_and_works_on_after_it():
    disk = VirtualDisk(Random(0))
    disk.arm(2)
    disk.append("log", b"1")
    disk.append("log", b"2")
    with pytest.raises(Crashed):
        disk.remove("nothing")
    disk.append("log", b"3")
    assert disk.read("log") == b"123"


def flow(seed, disturb):
    """What of 0..9 arrives when a pipe is disturbed in the middle."""
    agenda, arrived = EventQueue(seed), []
    pipe = Link(agenda, 1.0, arrived.append)
    for number in range(10):
        agenda.after(0.3 * number, lambda number=number: pipe.send(number))
    agenda.after(2.0, lambda: disturb(pipe))
    while agenda.next():
        pass
    return arrived


def test_a_stalled_pipe_brings_everything_in_order():
    for seed in range(20):
        assert flow(seed, lambda pipe: pipe.stall(50.0)) == list(range(10))


def test_a_cut_pipe_brings_a_beginning_in_order_and_nothing_sent_later():
    lengths = set()
    for seed in range(60):
        arrived = flow(seed, lambda pipe: pipe.cut())
        assert arrived == list(range(len(arrived)))
        lengths.add(len(arrived))
    assert max(lengths) <= 7, "what was sent after the cut is lost"
    assert len(lengths) > 3
