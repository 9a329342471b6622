"""Room at the end of a log: it is there while the log is open, and nobody reads it."""

import errno
import os

import pytest

from fdml.storage import appended_file
from fdml.storage.appended_file import AppendedFile
from fdml.storage.disk import FolderDisk
from fdml.storage.journal import Journal

AHEAD = 1000


@pytest.fixture(autouse=True)
def short_files_have_room(monkeypatch):
    monkeypatch.setattr(appended_file, "_LONG", 10)
    monkeypatch.setattr(appended_file, "_LARGE", 100)


def test_a_file_without_room_is_as_long_as_what_was_appended(tmp_path):
    file = AppendedFile(tmp_path / "log")
    for _ in range(5):
        file.append(b"0123456789", synced=True)
    assert (tmp_path / "log").stat().st_size == 50
    file.close()


def test_room_is_made_once_the_file_is_long_and_cut_off_at_the_end(tmp_path):
    path = tmp_path / "log"
    file = AppendedFile(path, AHEAD)
    file.append(b"0123456789", synced=True)
    assert path.stat().st_size == 10, "a short file has none"
    file.append(b"ab", synced=True)
    assert path.read_bytes() == b"0123456789ab" + bytes(AHEAD)
    file.append(b"cd", synced=True)
    assert path.read_bytes() == b"0123456789abcd" + bytes(AHEAD - 2), "it takes of the room"
    file.close()
    assert path.read_bytes() == b"0123456789abcd"


def test_an_append_in_room_does_not_change_how_long_the_file_is(tmp_path):
    path = tmp_path / "log"
    file = AppendedFile(path, AHEAD)
    sizes = set()
    for number in range(60):
        file.append(b"%010d" % number, synced=True)
        sizes.add(path.stat().st_size)
    assert len(sizes) == 2, "short, then with room"
    file.close()
    assert path.read_bytes() == b"".join(b"%010d" % number for number in range(60))


def test_a_large_append_makes_no_room(tmp_path):
    file = AppendedFile(tmp_path / "log", AHEAD)
    for _ in range(3):
        file.append(bytes(200), synced=True)
    assert (tmp_path / "log").stat().st_size == 600
    file.close()


def test_a_later_start_goes_on_at_the_end(tmp_path):
    for part in (b"0123456789ab", b"cd", b"ef"):
        file = AppendedFile(tmp_path / "log", AHEAD)
        file.append(part, synced=True)
        file.close()
    assert (tmp_path / "log").read_bytes() == b"0123456789abcdef"


def test_a_disk_without_room_takes_what_fits(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    file = AppendedFile(tmp_path / "log", AHEAD)
    for _ in range(3):
        file.append(b"0123456789", synced=True)
    file.close()
    assert (tmp_path / "log").read_bytes() == b"0123456789" * 3


def test_a_log_that_was_not_closed_is_read_without_its_room_and_goes_on(tmp_path):
    """As after a crash: the room is still there."""
    crashed = Journal(FolderDisk(tmp_path, ahead=AHEAD), "log")
    records = [b"record %d" % number for number in range(8)]
    for record in records:
        crashed.append([record])
    assert (tmp_path / "log").read_bytes().endswith(bytes(AHEAD // 2))
    again = Journal(FolderDisk(tmp_path, ahead=AHEAD), "log")
    assert list(again.replay()) == records
    again.append([b"next"])
    assert list(Journal(FolderDisk(tmp_path), "log").replay()) == [*records, b"next"]


def test_a_torn_group_in_room_is_cut_off_with_it(tmp_path):
    crashed = Journal(FolderDisk(tmp_path, ahead=AHEAD), "log")
    for number in range(8):
        crashed.append([b"record %d" % number])
    content = bytearray((tmp_path / "log").read_bytes())
    content[crashed.size - 3 : crashed.size] = bytes(3)
    (tmp_path / "log").write_bytes(content)
    assert list(Journal(FolderDisk(tmp_path), "log").replay()) == [b"record %d" % number for number in range(7)]
