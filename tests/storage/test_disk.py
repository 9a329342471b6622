import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.storage.disk import FolderDisk
from tests.examples import examples
from tests.storage.system_calls import SystemCalls, crash_at_every_call


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def disk(folder):
    return FolderDisk(folder)


@pytest.fixture
def calls(monkeypatch):
    return SystemCalls(monkeypatch)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_not_there_is_none(disk):
    assert disk.read("state") is None


def test_the_folder_is_made_and_may_be_there(tmp_path):
    FolderDisk(tmp_path / "a" / "b").replace("x", b"1")
    assert FolderDisk(tmp_path / "a" / "b").read("x") == b"1"


def test_a_replaced_file_holds_the_last_content_whole(disk, folder):
    disk.replace("state", b"a long first content")
    disk.replace("state", b"short")
    assert disk.read("state") == b"short"
    disk.replace("state", b"")
    assert disk.read("state") == b""
    assert os.listdir(folder) == ["state"]


def test_a_replacement_cut_short_leaves_the_old_content(tmp_path):
    def prepare():
        disk = FolderDisk(tmp_path / "state")
        disk.replace("state", b"old")
        return disk

    def check(disk, *, ended):
        assert disk.read("state") in ([b"new and longer"] if ended else [b"old", b"new and longer"])

    assert crash_at_every_call(lambda disk: disk.replace("state", b"new and longer"), prepare, check) > 6


def test_an_append_cut_short_leaves_the_old_content_or_more(tmp_path):
    def prepare():
        disk = FolderDisk(tmp_path / "state")
        disk.replace("log", b"old")
        return disk

    def check(disk, *, ended):
        assert disk.read("log") in ([b"old and new"] if ended else [b"old", b"old and new"])

    assert crash_at_every_call(lambda disk: disk.append("log", b" and new"), prepare, check) > 3


def test_appended_bytes_are_synced_and_a_new_file_is_entered_in_its_folder(disk, calls):
    disk.append("log", b"one")
    assert calls == ["open", "open", "fsync", "write", "fdatasync"]
    calls.clear()
    disk.append("log", b"two")
    assert calls == ["write", "fdatasync"]
    assert disk.read("log") == b"onetwo"


def test_appended_bytes_are_synced_where_the_system_has_no_fdatasync(disk, calls, monkeypatch):
    monkeypatch.delattr(os, "fdatasync")
    disk.append("log", b"one")
    assert calls == ["open", "open", "fsync", "write", "fsync"]


def test_a_cut_is_synced(disk, calls):
    disk.append("log", b"0123")
    calls.clear()
    disk.truncate("log", 2)
    assert calls == ["open", "ftruncate", "fsync"]


def test_a_removal_is_entered_in_the_folder(disk, calls):
    disk.replace("state", b"1")
    calls.clear()
    disk.remove("state")
    assert calls == ["unlink", "open", "fsync"]


def test_writing_goes_on_where_the_system_took_only_a_part(disk, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: real(handle, bytes(content)[:3]))
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


def test_a_folder_that_was_open_to_all_is_closed(tmp_path):
    (tmp_path / "state").mkdir(mode=0o777)
    FolderDisk(tmp_path / "state")
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_files_are_for_their_owner_only(disk, folder):
    before = os.umask(0)
    try:
        disk.replace("state", b"secret")
        disk.append("log", b"secret")
        (folder / ".other.partial").write_bytes(b"left behind, and open to all")
        disk.replace("other", b"secret")
    finally:
        os.umask(before)
    assert [mode(folder / name) for name in ("state", "log", "other")] == [0o600] * 3


@examples(50)
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
