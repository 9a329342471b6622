"""What every disk must pass: the real one, that of the tests and that of the simulator."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.storage.disk import FolderDisk
from simulator.disk import Crashed, VirtualDisk
from tests.storage.memory_disk import MemoryDisk, PowerCut
from tests.storage.system_calls import SystemCalls


class OnRealDisk:
    """A folder; the power is cut at a system call."""

    def __init__(self, tmp_path_factory, seed):
        self._folder = tmp_path_factory.mktemp("disk")
        self.disk = FolderDisk(self._folder)

    def crash(self, calls, act):
        with pytest.MonkeyPatch.context() as monkeypatch:
            SystemCalls(monkeypatch).calls_left = calls
            with contextlib.suppress(PowerCut):
                act(self.disk)
        self.disk = FolderDisk(self._folder)


class InMemory:
    """The disk of the tests; the power is cut at a write."""

    def __init__(self, tmp_path_factory, seed):
        self.disk = MemoryDisk(torn=seed % 7)

    def crash(self, calls, act):
        self.disk.writes_left = calls // 3
        with contextlib.suppress(PowerCut):
            act(self.disk)
        self.disk = self.disk.copy()


class InSimulator:
    """The disk of the simulator; it dies in a write, and what arrived is drawn at random."""

    def __init__(self, tmp_path_factory, seed):
        self.disk = VirtualDisk(Random(seed))

    def crash(self, calls, act):
        self.disk.arm(calls // 3)
        with contextlib.suppress(Crashed):
            act(self.disk)
        self.disk.disarm()


DISKS = pytest.mark.parametrize("kind", [OnRealDisk, InMemory, InSimulator])
actions = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "replace"]), st.sampled_from("ab"), st.binary(min_size=1, max_size=20)),
        st.tuples(st.just("truncate"), st.sampled_from("ab"), st.integers(0, 20)),
        st.tuples(st.just("remove"), st.sampled_from("ab"), st.none()),
    ),
    max_size=12,
)


def apply(disk, files, action, name, argument):
    """Do the same to a disk and to a plain dictionary."""
    if action == "append":
        disk.append(name, argument)
        files[name] = files.get(name, b"") + argument
    elif action == "replace":
        disk.replace(name, argument)
        files[name] = argument
    elif action == "remove":
        disk.remove(name)
        files.pop(name, None)
    elif name in files:
        size = min(argument, len(files[name]))
        disk.truncate(name, size)
        files[name] = files[name][:size]


def content(disk):
    return {name: found for name in "ab" if (found := disk.read(name)) is not None}


@DISKS
@given(steps=actions, seed=st.integers(0, 99))
def test_a_disk_behaves_as_a_dictionary_of_files(kind, tmp_path_factory, steps, seed):
    disk, files = kind(tmp_path_factory, seed).disk, {}
    for step in steps:
        apply(disk, files, *step)
        assert content(disk) == files


@DISKS
def test_what_was_never_written_is_none_and_removing_it_changes_nothing(kind, tmp_path_factory):
    disk = kind(tmp_path_factory, 1).disk
    disk.replace("b", b"1")
    disk.remove("a")
    assert disk.read("a") is None
    assert disk.read("b") == b"1"


@DISKS
def test_a_scratch_file_has_no_name_and_is_read_as_it_was_written(kind, tmp_path_factory):
    disk = kind(tmp_path_factory, 1).disk
    with disk.scratch() as one, disk.scratch() as other:
        one.write(b"one")
        other.write(b"other")
        one.seek(0)
        assert one.read(2) + one.read() == b"one"
    assert content(disk) == {}


@DISKS
def test_a_reader_reads_the_file_as_it_was(kind, tmp_path_factory):
    disk = kind(tmp_path_factory, 1).disk
    assert disk.reader("a") is None
    disk.replace("a", memoryview(b"first"))
    with disk.reader("a") as reader:
        disk.replace("a", b"second")
        assert reader.read(2) + reader.read() == b"first"


@DISKS
def test_an_empty_file_is_a_file(kind, tmp_path_factory):
    disk = kind(tmp_path_factory, 1).disk
    disk.replace("a", b"")
    assert disk.read("a") == b""


@DISKS
@given(
    old=st.none() | st.binary(max_size=8),
    new=st.binary(min_size=1, max_size=8),
    calls=st.integers(0, 12),
    seed=st.integers(0, 99),
)
def test_a_crash_in_a_replacement_leaves_the_old_file_or_the_new_one(kind, tmp_path_factory, old, new, calls, seed):
    holder = kind(tmp_path_factory, seed)
    if old is not None:
        holder.disk.replace("a", old)
    holder.crash(calls, lambda disk: disk.replace("a", new))
    assert holder.disk.read("a") in (old, new)


@DISKS
@given(
    old=st.binary(max_size=8), new=st.binary(min_size=1, max_size=8), calls=st.integers(0, 8), seed=st.integers(0, 99)
)
def test_a_crash_in_an_append_leaves_what_was_there_and_a_first_part_of_the_rest(
    kind, tmp_path_factory, old, new, calls, seed
):
    holder = kind(tmp_path_factory, seed)
    holder.disk.replace("a", old)
    holder.crash(calls, lambda disk: disk.append("a", new))
    found = holder.disk.read("a")
    assert len(found) >= len(old)
    assert (old + new).startswith(found)


@DISKS
@given(calls=st.integers(0, 8), seed=st.integers(0, 99))
def test_a_crash_in_a_cut_or_a_removal_leaves_the_file_before_or_after(kind, tmp_path_factory, calls, seed):
    holder = kind(tmp_path_factory, seed)
    holder.disk.replace("a", b"0123")
    holder.disk.replace("b", b"4567")
    holder.crash(calls, lambda disk: disk.truncate("a", 2))
    holder.crash(calls, lambda disk: disk.remove("b"))
    assert holder.disk.read("a") in (b"0123", b"01")
    assert holder.disk.read("b") in (b"4567", None)


@DISKS
@given(calls=st.integers(0, 12), seed=st.integers(0, 99))
def test_a_crash_harms_no_other_file(kind, tmp_path_factory, calls, seed):
    holder = kind(tmp_path_factory, seed)
    holder.disk.replace("b", b"kept")
    holder.crash(calls, lambda disk: disk.replace("a", b"new"))
    holder.crash(calls, lambda disk: disk.append("c", b"new"))
    assert holder.disk.read("b") == b"kept"


@DISKS
@given(calls=st.integers(0, 12), seed=st.integers(0, 99))
def test_work_goes_on_after_a_crash(kind, tmp_path_factory, calls, seed):
    holder = kind(tmp_path_factory, seed)
    holder.crash(calls, lambda disk: disk.replace("a", b"first"))
    holder.disk.replace("a", b"second")
    holder.disk.append("a", b" and third")
    assert holder.disk.read("a") == b"second and third"
