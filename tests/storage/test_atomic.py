import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.storage import atomic
from fdml.storage.atomic import (
    PUBLIC,
    folder_identity,
    make_private_folder,
    name_folder,
    new_file,
    new_folder,
    remove_folder,
    sync,
    sync_data,
    whole_folder,
    write_file,
)
from tests.storage.system_calls import SystemCalls, crash_at_every_call


@pytest.fixture
def calls(monkeypatch):
    return SystemCalls(monkeypatch)


@pytest.fixture
def open_umask():
    """A user whose files are open to all unless a program says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", [b"", b"new", bytes(range(256)) * 999])
def test_a_file_holds_what_was_written_and_nothing_else_is_left(tmp_path, content):
    path = tmp_path / "state"
    write_file(path, b"a longer content from before")
    write_file(path, content)
    assert path.read_bytes() == content
    assert names(tmp_path) == ["state"]


def test_a_file_is_synced_before_it_gets_its_name_and_its_folder_after(tmp_path, calls):
    write_file(tmp_path / "state", b"new")
    assert calls.of("write", "fsync", "replace") == ["write", "fsync", "replace", "fsync"]


def test_what_is_not_synced_still_takes_the_place_of_the_old_in_one_step(tmp_path, calls):
    write_file(tmp_path / "state", b"new", synced=False)
    assert calls.of("write", "fsync", "replace") == ["write", "replace"]
    assert (tmp_path / "state").read_bytes() == b"new"
    assert names(tmp_path) == ["state"]


def test_a_folder_that_was_replaced_has_another_identity_each_time(tmp_path):
    """A file system gives the number of a removed folder to the next: two replacements may bring the first back."""
    identities = [folder_identity(tmp_path / "model")]
    for content in (b"1", b"2", b"3", b"4"):
        with new_folder(tmp_path / "model") as beside:
            (beside / "facts").write_bytes(content)
        identities.append(folder_identity(tmp_path / "model"))
        assert folder_identity(tmp_path / "model") == identities[-1]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("there", [("model",), (".model.old",), (".model.partial",), ("model", ".model.old"), ()])
def test_a_folder_is_removed_with_all_that_a_crash_has_left_of_it(tmp_path, there):
    for name in there:
        (tmp_path / name).mkdir()
        (tmp_path / name / "facts").write_bytes(b"1")
    (tmp_path / ".other.old").mkdir()
    assert remove_folder(tmp_path / "model") == bool(there)
    assert names(tmp_path) == [".other.old"]
    assert not whole_folder(tmp_path / "model").exists()


def test_a_folder_in_mid_swap_has_its_old_identity(tmp_path):
    with new_folder(tmp_path / "model") as beside:
        (beside / "facts").write_bytes(b"1")
    before = folder_identity(tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / ".model.old")
    assert folder_identity(tmp_path / "model") == before


def test_a_folder_is_synced_by_its_own_handle(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    write_file(tmp_path / "state", b"new")
    assert synced == [(tmp_path / "state").stat().st_ino, tmp_path.stat().st_ino]


def test_writing_goes_on_where_the_system_took_only_a_part(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: real(handle, bytes(content)[:3]))
    write_file(tmp_path / "state", b"0123456789")
    assert (tmp_path / "state").read_bytes() == b"0123456789"


@pytest.mark.parametrize("old", [None, b"old and longer than the new"])
def test_a_crash_at_any_call_leaves_the_old_file_or_the_new_one_whole(tmp_path, old):
    path = tmp_path / "state"

    def prepare():
        path.unlink(missing_ok=True)
        if old is not None:
            write_file(path, old)
        return path

    def check(path, *, ended):
        found = path.read_bytes() if path.exists() else None
        assert found in ([b"new"] if ended else [old, b"new"])
        write_file(path, b"newer")
        assert path.read_bytes() == b"newer"
        assert names(tmp_path) == ["state"]

    assert crash_at_every_call(lambda path: write_file(path, b"new"), prepare, check) > 6


@given(st.binary(max_size=50), st.integers(1, 7))
def test_a_disk_that_is_full_leaves_the_old_file_and_no_rest(tmp_path_factory, content, taken):
    path = tmp_path_factory.mktemp("full") / "state"
    write_file(path, b"old")
    real, room = os.write, [taken]

    def write(handle, view):
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = real(handle, bytes(view)[: room[0]])
        room[0] -= written
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", write)
        if len(content) > taken:
            with pytest.raises(OSError, match="No space left"):
                write_file(path, content)
        else:
            write_file(path, content)
    assert path.read_bytes() == (b"old" if len(content) > taken else content)
    assert names(path.parent) == ["state"]


def test_a_file_has_its_mode_when_it_is_created(tmp_path, open_umask, calls):
    write_file(tmp_path / "key", b"secret")
    write_file(tmp_path / "figures", b"for all", mode=PUBLIC)
    assert calls.opened() == [(".key.partial", 0o600), (".figures.partial", 0o666)]
    assert (mode(tmp_path / "key"), mode(tmp_path / "figures")) == (0o600, 0o666)


def test_the_umask_of_the_user_holds_for_files_that_are_no_secret(tmp_path):
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "figures", b"for the group", mode=PUBLIC)
    finally:
        os.umask(before)
    assert mode(tmp_path / "figures") == 0o640


def test_a_secret_never_goes_into_a_file_that_someone_has_open(tmp_path, open_umask):
    left = tmp_path / ".key.partial"
    left.write_bytes(b"left by a crash, and open to all")
    with left.open("rb") as reader:
        write_file(tmp_path / "key", b"secret")
        assert reader.read() == b"left by a crash, and open to all"
    assert mode(tmp_path / "key") == 0o600


def test_a_secret_never_goes_where_a_planted_link_leads(tmp_path):
    (tmp_path / ".key.partial").symlink_to(tmp_path / "elsewhere")
    write_file(tmp_path / "key", b"secret")
    assert names(tmp_path) == ["key"]


def test_an_older_file_that_was_open_to_all_is_replaced_by_one_that_is_not(tmp_path):
    (tmp_path / "key").write_bytes(b"old")
    (tmp_path / "key").chmod(0o666)
    write_file(tmp_path / "key", b"new")
    assert mode(tmp_path / "key") == 0o600


def test_a_link_stays_a_link_and_the_file_behind_it_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "state").write_bytes(b"old")
    (tmp_path / "state").symlink_to(tmp_path / "disk" / "state")
    write_file(tmp_path / "state", b"new")
    assert (tmp_path / "state").is_symlink()
    assert (tmp_path / "disk" / "state").read_bytes() == b"new"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    found = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_file(tmp_path / "pipe", b"figures", mode=PUBLIC)
    reader.join()
    assert found == [b"figures"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_that_is_not_there_is_an_error_and_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone"):
        write_file(tmp_path / "gone" / "state", b"new")
    assert names(tmp_path) == []


@pytest.mark.parametrize("there", [True, False], ids=["Linux", "macOS"])
def test_content_is_synced_also_where_the_system_has_no_fdatasync(tmp_path, monkeypatch, there):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append("fsync"))
    monkeypatch.setattr(os, "fdatasync", lambda handle: synced.append("fdatasync"))
    if not there:
        monkeypatch.delattr(os, "fdatasync")
    sync_data(0)
    assert synced == ["fdatasync" if there else "fsync"]


def test_the_first_folder_of_a_name_stays(tmp_path):
    for number in (1, 2):
        (tmp_path / f"made{number}").mkdir()
        (tmp_path / f"made{number}" / "content").write_text(str(number))
        name_folder(tmp_path / f"made{number}", tmp_path / "named")
    assert (tmp_path / "named" / "content").read_text() == "1"
    with pytest.raises(FileNotFoundError):
        name_folder(tmp_path / "gone", tmp_path / "other")


def test_nothing_else_of_the_package_syncs_or_renames():
    """There is one way to write a file that must last; a disk adds appending and cutting to it."""
    here = Path(atomic.__file__)
    calls = ("os.fsync", "fdatasync", "os.replace(", "os.rename(", ".partial")
    found = {
        path.name: [call for call in calls if call in path.read_text(encoding="utf-8")]
        for path in here.parents[1].rglob("*.py")
        if path != here
    }
    assert {name: called for name, called in found.items() if called} == {"disk.py": ["os.fsync"]}


def fill(folder, **texts):
    with new_folder(folder) as inner:
        for name, text in texts.items():
            with new_file(inner / name) as file:
                file.write(text.encode())


def content(folder):
    whole = whole_folder(folder)
    return {path.name: path.read_text() for path in whole.iterdir()} if whole.exists() else None


def test_a_folder_appears_whole_and_replaces_the_one_before(tmp_path):
    fill(tmp_path / "model", a="1", b="2")
    fill(tmp_path / "model", b="3", c="4")
    assert content(tmp_path / "model") == {"b": "3", "c": "4"}
    assert names(tmp_path) == ["model"]


def test_a_folder_and_its_files_are_for_their_owner_from_their_first_byte(tmp_path, open_umask, calls):
    fill(tmp_path / "model", a="1", b="2")
    assert calls.opened() == [("a", 0o600), ("b", 0o600)]
    assert mode(tmp_path / "model") == 0o700
    assert {mode(path) for path in (tmp_path / "model").iterdir()} == {0o600}


def test_a_folder_for_all_is_as_the_umask_says(tmp_path):
    before = os.umask(0o022)
    try:
        with new_folder(tmp_path / "data", mode=0o777):
            pass
    finally:
        os.umask(before)
    assert mode(tmp_path / "data") == 0o755


def test_missing_parents_of_a_folder_are_made(tmp_path):
    fill(tmp_path / "a" / "b" / "model", x="1")
    assert content(tmp_path / "a" / "b" / "model") == {"x": "1"}


def test_all_files_and_folders_inside_are_synced_before_the_folder_gets_its_name(tmp_path, monkeypatch):
    seen = []
    real_sync, real_rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (seen.append(os.fstat(handle).st_ino), real_sync(handle)))
    monkeypatch.setattr(os, "rename", lambda one, other: (seen.append("rename"), real_rename(one, other)))
    with new_folder(tmp_path / "model") as inner:
        (inner / "deep").mkdir()
        (inner / "deep" / "file").write_text("1")
        (inner / "other").write_text("2")
    model = tmp_path / "model"
    inside = [path.stat().st_ino for path in (model / "deep" / "file", model / "deep", model / "other", model)]
    assert sorted(seen[:4]) == sorted(inside)
    assert seen[3] == model.stat().st_ino
    assert seen[4:] == ["rename", tmp_path.stat().st_ino]


def test_a_failing_block_leaves_the_folder_of_before(tmp_path):
    fill(tmp_path / "model", a="old")

    def fail():
        with new_folder(tmp_path / "model") as inner:
            (inner / "a").write_text("new")
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fail()
    assert content(tmp_path / "model") == {"a": "old"}
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("old", [None, {"a": "old", "b": "older"}])
def test_a_crash_at_any_call_leaves_the_old_folder_or_the_new_one_whole(tmp_path_factory, old):
    def prepare():
        folder = tmp_path_factory.mktemp("crash") / "model"
        if old is not None:
            fill(folder, **old)
        return folder

    def check(folder, *, ended):
        assert content(folder) in ([{"a": "new"}] if ended else [old, {"a": "new"}])
        fill(folder, c="newer")
        assert content(folder) == {"c": "newer"}
        assert names(folder.parent) == ["model"]

    assert crash_at_every_call(lambda folder: fill(folder, a="new"), prepare, check) > 8


def test_two_crashes_in_a_row_do_not_lose_the_folder(tmp_path):
    """The first one between the two renames; the second one while the next folder is filled."""
    folder = tmp_path / "model"
    fill(folder, a="old")
    folder.rename(tmp_path / ".model.old")

    def fail():
        with new_folder(folder):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert content(folder) == {"a": "old"}


def test_a_folder_that_was_never_written_is_looked_for_in_its_place(tmp_path):
    assert whole_folder(tmp_path / "model") == tmp_path / "model"


def test_a_new_file_is_never_one_that_was_there(tmp_path):
    (tmp_path / "values").write_bytes(b"old")
    with pytest.raises(FileExistsError), new_file(tmp_path / "values"):
        pass


def test_syncing_what_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "gone")


def test_a_folder_and_its_new_parents_are_for_their_owner_only(tmp_path):
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        make_private_folder(there / "runs" / "first" / "state")
        make_private_folder(there / "runs" / "first" / "state")
    finally:
        os.umask(before)
    made = [there / "runs", there / "runs" / "first", there / "runs" / "first" / "state"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
    assert stat.S_IMODE(there.stat().st_mode) == 0o755, "what was there stays as it was"
