from random import Random

import pytest

from simulator.disk import Crashed, VirtualDisk


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


def test_a_damaged_file_differs_in_one_byte():
    disk = VirtualDisk(Random(0))
    disk.replace("state.0", bytes(range(10)))
    disk.damage("state.0")
    differing = [one != other for one, other in zip(disk.read("state.0"), range(10), strict=True)]
    assert sum(differing) == 1


def test_a_full_disk_tears_writes_too_but_the_process_is_told():
    found = set()
    for seed in range(100):
        disk = VirtualDisk(Random(seed))
        disk.append("log", b"old.")
        disk.fill(1)
        with pytest.raises(OSError, match="no space left"):
            disk.append("log", b"new")
        found.add(disk.read("log"))
        disk.append("log", b"!")
        assert disk.read("log").endswith(b"!"), "there is room again"
    assert found == {b"old.", b"old.n", b"old.ne", b"old.new"}


def test_a_disk_that_dies_while_it_is_full_is_sound_after_it():
    disk = VirtualDisk(Random(0))
    disk.arm(0)
    disk.fill(5)
    with pytest.raises(Crashed):
        disk.append("log", b"1")
    disk.disarm()
    disk.replace("log", b"2")
    assert disk.read("log") == b"2"
