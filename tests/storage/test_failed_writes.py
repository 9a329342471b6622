"""Chaos 1: what happens to the log when the disk takes a write in part or not at all, and the process lives on."""

import errno
import os
import subprocess
import sys
from random import Random

import pytest

from fdml.errors import StateCorrupt
from fdml.storage.disk import FolderDisk
from fdml.storage.journal import Journal
from simulator.disk import VirtualDisk

SMALL_FILES = """
import resource, signal, sys
from pathlib import Path
from fdml.storage.disk import FolderDisk
from fdml.storage.journal import Journal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal(FolderDisk(Path(sys.argv[1])), "log")
failed, stored = 0, []
for number in range(60):
    # there is room for a while, then none, then room again
    limit = 1500 if number < 40 else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    record = b"record %d " % number * 7
    try:
        journal.append([record])
    except OSError:
        failed += 1
    else:
        stored.append(record)
print(failed, len(stored))
sys.stdout.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
Path(sys.argv[1], "stored").write_bytes(b"|".join(stored))
"""


def test_after_a_full_disk_all_that_was_stored_is_read_again(tmp_path):
    """On the old code the first failed write left a torn group, and all that was stored behind it was lost."""
    ran = subprocess.run(
        [sys.executable, "-c", SMALL_FILES, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    failed, stored = map(int, ran.stdout.split())
    assert failed > 10
    assert stored > 25
    expected = (tmp_path / "stored").read_bytes().split(b"|")
    assert list(Journal(FolderDisk(tmp_path), "log").replay()) == expected


def test_whatever_part_of_a_failed_write_arrived_it_is_cut_off():
    for seed in range(200):
        disk, random, stored = VirtualDisk(Random(seed)), Random(seed), []
        journal = Journal(disk, "log")
        for number in range(12):
            if random.random() < 0.4:
                disk.fill(random.randint(1, 3))
            try:
                journal.append([b"record %d" % number])
            except (OSError, StateCorrupt):
                continue
            stored.append(b"record %d" % number)
        disk.disarm()
        assert list(Journal(disk, "log").replay())[: len(stored)] == stored, seed


class Broken(FolderDisk):
    """A disk that has no more room for anything, and cannot even be cut: an append leaves three bytes."""

    is_broken = False

    def append(self, name, content, **options):
        if not self.is_broken:
            return super().append(name, content, **options)
        super().append(name, content[:3], **options)
        raise OSError(errno.ENOSPC, "No space left on device")

    def truncate(self, name, size):
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        super().truncate(name, size)

    def replace(self, name, content):
        super().replace(name, content)
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")


def test_a_log_that_cannot_be_cut_back_takes_nothing_more(tmp_path):
    disk = Broken(tmp_path)
    journal = Journal(disk, "log")
    journal.append([b"one"])
    disk.is_broken = True
    with pytest.raises(OSError, match="No space left"):
        journal.append([b"two"])
    disk.is_broken = False
    for write in (journal.append, journal.restart):
        with pytest.raises(StateCorrupt, match="the log 'log' could not be written and is closed; make room, then run"):
            write([b"three"])
    assert list(Journal(FolderDisk(tmp_path), "log").replay()) == [b"one"]


def test_a_log_that_may_or_may_not_have_been_begun_anew_takes_nothing_more(tmp_path):
    disk = Broken(tmp_path)
    journal = Journal(disk, "log")
    journal.append([b"one"])
    disk.is_broken = True
    with pytest.raises(OSError, match="Input/output"):
        journal.restart([b"marker"])
    disk.is_broken = False
    with pytest.raises(StateCorrupt, match="is closed"):
        journal.append([b"two"])
    assert list(Journal(FolderDisk(tmp_path), "log").replay()) == [b"marker"]


def test_a_first_write_that_fails_leaves_no_log(tmp_path):
    disk = Broken(tmp_path)
    disk.is_broken = True
    journal = Journal(disk, "log")
    with pytest.raises(OSError, match="No space left"):
        journal.append([b"one"])
    assert not os.path.exists(tmp_path / "log")
    disk.is_broken = False
    journal.append([b"two"])
    assert list(Journal(FolderDisk(tmp_path), "log").replay()) == [b"two"]
