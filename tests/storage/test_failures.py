import errno
import os

import pytest

from fdml.errors import StateCorrupt
from fdml.storage.atomic import extended_file, naming, new_file, write_file
from fdml.storage.disk import FolderDisk
from fdml.storage.failures import explained_failures, storage_failure


@pytest.mark.parametrize(
    ("number", "way"),
    [
        (errno.ENOSPC, "make room on the disk"),
        (errno.EDQUOT, "make room on the disk"),
        (errno.EROFS, "is not read-only and belongs to this user"),
        (errno.EACCES, "is not read-only and belongs to this user"),
        (errno.EIO, "see to the disk"),
    ],
)
def test_a_failure_names_the_file_the_reason_and_the_way_out(number, way):
    text = storage_failure(OSError(number, os.strerror(number), "state/releases"))
    assert "'state/releases'" in text
    assert os.strerror(number) in text
    assert way in text
    assert "\n" not in text


def test_numpy_says_only_how_much_was_written(tmp_path):
    with pytest.raises(OSError, match="6876 requested") as raised, naming(tmp_path / "values"):
        raise OSError("6876 requested and 5120 written")
    assert "values' (6876 requested and 5120 written); make room" in storage_failure(raised.value)


def test_an_error_of_a_file_becomes_ours_and_one_of_a_pipe_does_not():
    @explained_failures()
    def fail(error):
        raise error

    with pytest.raises(StateCorrupt, match="No space left"):
        fail(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(BrokenPipeError):
        fail(BrokenPipeError())
    with pytest.raises(ValueError, match="else"):
        fail(ValueError("else"))


def test_errors_of_writing_name_the_file_that_was_to_be_written(tmp_path, monkeypatch):
    disk = FolderDisk(tmp_path)
    disk.append("log", b"first")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for work in (lambda: write_file(tmp_path / "one", b"x"), lambda: disk.append("log", b"more")):
        with pytest.raises(OSError, match="No space left") as raised:
            work()
        assert raised.value.filename in (str(tmp_path / "one"), str(tmp_path / "log"))


@pytest.mark.parametrize("opened", [new_file, extended_file])
def test_errors_inside_the_block_of_a_file_name_it(tmp_path, opened):
    with pytest.raises(OSError, match="written") as raised, opened(tmp_path / "values"):
        raise OSError("9 requested and 5 written")
    assert raised.value.filename == str(tmp_path / "values")


def test_naming_leaves_other_errors_alone(tmp_path):
    with pytest.raises(ValueError, match="else"), naming(tmp_path):
        raise ValueError("else")


def test_an_extended_file_grows_and_is_its_owners(tmp_path):
    before = os.umask(0)
    try:
        for part in (b"a", b"b"):
            with extended_file(tmp_path / "part") as file:
                file.write(part)
    finally:
        os.umask(before)
    assert (tmp_path / "part").read_bytes() == b"ab"
    assert (tmp_path / "part").stat().st_mode & 0o777 == 0o600
