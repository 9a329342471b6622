"""One process at a time writes to a folder."""

import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from fdml.errors import SettingsError
from fdml.storage.lock import LOCK, exclusive_lock, shared_turns

HOLDER = """
import sys, time
from pathlib import Path
from fdml.storage.lock import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), "party"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder's lock."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_gets_one_line_that_names_the_first(tmp_path, holder):
    with (
        pytest.raises(SettingsError, match=rf"another party is running \(process {holder.pid}\): .* is in use"),
        exclusive_lock(tmp_path, "party"),
    ):
        raise AssertionError


def test_a_killed_process_leaves_no_lock(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait(10)
    with exclusive_lock(tmp_path, "party"):
        assert (tmp_path / LOCK).read_text() == str(os.getpid())


def test_the_lock_is_free_after_the_block_also_after_an_error(tmp_path):
    with pytest.raises(ValueError, match="inside"), exclusive_lock(tmp_path, "server"):
        raise ValueError("inside")
    with exclusive_lock(tmp_path, "server"):
        pass


def test_the_lock_is_for_its_owner_and_makes_its_folder(tmp_path):
    before = os.umask(0)
    try:
        with exclusive_lock(tmp_path / "new", "server"):
            assert stat.S_IMODE((tmp_path / "new" / LOCK).stat().st_mode) == 0o600
            assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_those_who_take_turns_wait_for_each_other(tmp_path):
    order = []

    def work(name):
        with shared_turns(tmp_path):
            order.append(f"{name} in")
            order.append(f"{name} out")

    with shared_turns(tmp_path):
        other = threading.Thread(target=work, args=("b",))
        other.start()
        order.append("a out")
    other.join(10)
    assert order == ["a out", "b in", "b out"]
