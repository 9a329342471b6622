import os
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.storage import disk as disk_module
from fdml.storage.disk import FolderDisk


class PowerCut(Exception):
    """The moment at which a test pulls the plug."""


@pytest.fixture
def disk(tmp_path):
    return FolderDisk(tmp_path / "state")


@pytest.fixture
def calls(monkeypatch):
    """What is asked of the operating system, in order; `cut` names the call that never returns."""

    class Calls(list):
        cut = None

    seen = Calls()

    def watch(name):
        real = getattr(os, name)

        def spy(*args, **kwargs):
            if name == seen.cut:
                raise PowerCut(name)
            seen.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(disk_module.os, name, spy)

    for name in ("write", "fsync", "fdatasync", "rename", "replace", "unlink", "ftruncate"):
        watch(name)
    return seen


def mode(disk, name):
    return stat.S_IMODE((disk._folder / name).stat().st_mode)


def test_what_is_not_there_is_none(disk):
    assert disk.read("state") is None


def test_the_folder_is_made_and_may_be_there(tmp_path):
    FolderDisk(tmp_path / "a" / "b").replace("x", b"1")
    assert FolderDisk(tmp_path / "a" / "b").read("x") == b"1"


def test_a_replaced_file_holds_the_last_content_whole(disk):
    disk.replace("state", b"a long first content")
    disk.replace("state", b"short")
    assert disk.read("state") == b"short"
    disk.replace("state", b"")
    assert disk.read("state") == b""
    assert os.listdir(disk._folder) == ["state"]


@pytest.mark.parametrize("cut", ["write", "fsync", "rename"])
def test_a_replacement_cut_short_leaves_the_old_content(disk, calls, cut, monkeypatch):
    disk.replace("state", b"old")
    if cut == "rename":
        monkeypatch.setattr(disk_module.Path, "replace", lambda *_: (_ for _ in ()).throw(PowerCut))
    else:
        calls.cut = cut
    with pytest.raises(PowerCut):
        disk.replace("state", b"new and longer")
    calls.cut = None
    monkeypatch.undo()
    assert disk.read("state") == b"old"
    disk.replace("state", b"newer")
    assert disk.read("state") == b"newer"


def test_content_is_synced_before_it_gets_its_name_and_the_folder_after(disk, calls, monkeypatch):
    real = disk_module.Path.replace

    def rename(self, target):
        calls.append("rename")
        return real(self, target)

    monkeypatch.setattr(disk_module.Path, "replace", rename)
    disk.replace("state", b"new")
    assert [call for call in calls if call != "replace"] == ["write", "fsync", "rename", "fsync"]


def test_appended_bytes_are_synced_and_a_new_file_is_entered_in_its_folder(disk, calls):
    disk.append("log", b"one")
    assert sorted(calls) == ["fdatasync", "fsync", "write"]
    assert calls[-1] == "fdatasync"
    calls.clear()
    disk.append("log", b"two")
    assert calls == ["write", "fdatasync"]
    assert disk.read("log") == b"onetwo"


def test_writing_goes_on_where_the_system_took_only_a_part(disk, monkeypatch):
    real = os.write
    monkeypatch.setattr(disk_module.os, "write", lambda handle, content: real(handle, bytes(content)[:3]))
    disk.append("log", b"0123456789")
    disk.replace("state", b"abcdefghij")
    assert disk.read("log") == b"0123456789"
    assert disk.read("state") == b"abcdefghij"


def test_appending_goes_on_in_another_process(disk, tmp_path):
    disk.append("log", b"one")
    FolderDisk(tmp_path / "state").append("log", b"two")
    disk.append("log", b"three")
    assert disk.read("log") == b"onetwothree"


def test_appending_goes_on_after_a_cut(disk):
    disk.append("log", b"0123456789")
    disk.truncate("log", 4)
    assert disk.read("log") == b"0123"
    disk.append("log", b"x")
    assert disk.read("log") == b"0123x"


def test_appending_goes_on_after_the_file_was_replaced_or_removed(disk):
    disk.append("log", b"old")
    disk.replace("log", b"new")
    disk.append("log", b"er")
    assert disk.read("log") == b"newer"
    disk.remove("log")
    assert disk.read("log") is None
    disk.append("log", b"fresh")
    assert disk.read("log") == b"fresh"


def test_removing_what_is_not_there_is_no_error(disk):
    disk.remove("nothing")


def test_files_are_for_their_owner_only(disk):
    before = os.umask(0)
    try:
        disk.replace("state", b"secret")
        disk.append("log", b"secret")
        (disk._folder / ".other.partial").write_bytes(b"left behind, and open to all")
        disk.replace("other", b"secret")
    finally:
        os.umask(before)
    assert [mode(disk, name) for name in ("state", "log", "other")] == [0o600] * 3


@settings(max_examples=50)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["append", "replace"]), st.sampled_from("ab"), st.binary(max_size=20)),
            st.tuples(st.sampled_from(["truncate", "remove"]), st.sampled_from("ab"), st.integers(0, 20)),
        ),
        max_size=20,
    )
)
def test_a_folder_behaves_as_a_plain_dictionary_would(tmp_path_factory, actions):
    disk, twin = FolderDisk(tmp_path_factory.mktemp("disk")), {}
    for action, name, argument in actions:
        if action == "append":
            disk.append(name, argument)
            twin[name] = twin.get(name, b"") + argument
        elif action == "replace":
            disk.replace(name, argument)
            twin[name] = argument
        elif action == "remove":
            disk.remove(name)
            twin.pop(name, None)
        elif name in twin:
            size = min(argument, len(twin[name]))
            disk.truncate(name, size)
            twin[name] = twin[name][:size]
    assert {name: disk.read(name) for name in "ab"} == {name: twin.get(name) for name in "ab"}
