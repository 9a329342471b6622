"""A server whose folder cannot be used says so in one line; one with room for more files takes it."""

import ctypes
import os
import resource
import signal
import subprocess
import sys

import grpc
import pytest

from fdml.errors import StateCorrupt
from fdml.federation.machine_limits import memory_size, raise_open_files
from fdml.federation.serve import serve
from fdml.transport.grpc_endpoint import ALIVE
from tests.federation.folders import RUN, write_run
from tests.transport.served import SECONDS, until


@pytest.fixture
def home(tmp_path):
    write_run(tmp_path / "run")
    return tmp_path / "run"


def test_a_state_folder_that_is_none_is_one_line_with_the_way_out(home):
    """Finding 24: it was a traceback."""
    (home / "server" / RUN).mkdir(parents=True)
    (home / "server" / RUN / "state").write_text("no folder")
    with pytest.raises(StateCorrupt, match=r"cannot store the run \(.*state.*\); make room in '.*server' and see that"):
        serve(home / "federation.toml", home / "run.toml", plain=True)


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv = ["fdml", "serve", "--plain", sys.argv[2], "--run", sys.argv[3]]
from fdml.cli.app import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 16])
def test_a_start_on_a_full_disk_is_one_line_with_the_way_out(home, room):
    """Finding 24: restart with the disk still full."""
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(room), str(home / "federation.toml"), str(home / "run.toml")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    (line,) = ran.stderr.strip().splitlines()
    assert line.startswith("fdml: cannot store the run ([Errno 27] File too large")
    assert line.endswith("then run the same command again")


@pytest.mark.slow
def test_calls_that_grpc_itself_refuses_do_not_fill_the_log(home, tmp_path):
    """Finding 11: gRPC writes a line of its own for every compressed call."""
    words = [
        "serve",
        "--plain",
        "--listen",
        "127.0.0.1:0",
        "--port-file",
        str(tmp_path / "port"),
        "--run",
        str(home / "run.toml"),
        str(home / "federation.toml"),
    ]
    with subprocess.Popen([sys.executable, "-m", "fdml", *words], stderr=subprocess.PIPE, text=True) as server:
        until(lambda: (tmp_path / "port").exists(), "the server listens")
        port = (tmp_path / "port").read_text().strip()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError) as failed:
            channel.unary_unary(ALIVE)(bytes(2**20), timeout=SECONDS, compression=grpc.Compression.Gzip)
        server.send_signal(signal.SIGTERM)
        printed = server.stderr.read()
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "serving run" in printed
    assert "gzip" not in printed


def test_as_many_files_may_be_open_as_the_system_allows():
    """Finding 10: 1,024 open files are 1,024 connections."""
    code = (
        "import resource\n"
        "from fdml.federation.machine_limits import raise_open_files\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))\n"
        "raise_open_files()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(ran.stdout) == (65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536))


def test_a_limit_that_is_high_enough_stays():
    raise_open_files()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_open_files()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


HEAPS = """
import ctypes, re, threading
from fdml.federation.machine_limits import share_heap, tune_server_process
{tune}
held = threading.Barrier(9)

def allocate():
    kept = [bytearray(20_000) for _ in range(20)]
    held.wait(20)
    held.wait(20)

threads = [threading.Thread(target=allocate, daemon=True) for _ in range(8)]
for thread in threads:
    thread.start()
held.wait(20)
ctypes.CDLL(None).malloc_stats()
held.wait(20)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="another allocator than glibc's")
@pytest.mark.parametrize(
    ("tune", "is_one"), [("tune_server_process()", True), ("assert share_heap()", True), ("", False)]
)
def test_all_threads_of_a_server_s_process_share_one_heap(tune, is_one):
    """Finding 10: what idle and broken connections leave free stayed in as many heaps as gRPC has threads."""
    code = HEAPS.format(tune=tune)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (ran.stderr.count("Arena ") == 1) == is_one


FREED = """
import ctypes, os, pathlib, time
from fdml.federation.machine_limits import give_back_memory, share_heap
share_heap()
give = {give}

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

before = resident()
blocks = [ctypes.create_string_buffer(b"x" * 50_000) for _ in range(1200)]
kept = blocks[::100]
full = resident() - before
del blocks
if give:
    assert give_back_memory(0.01)
deadline = time.monotonic() + (20.0 if give else 0.3)
while resident() - before > full / 4 and time.monotonic() < deadline:
    time.sleep(0.02)
print(full > 50e6, resident() - before < full / 4)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another allocator than glibc's")
@pytest.mark.parametrize("gives", [True, False])
def test_a_server_s_process_gives_back_what_lies_free_between_what_it_keeps(gives):
    ran = subprocess.run(
        [sys.executable, "-c", FREED.format(give=gives)], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == ["True", str(gives)]


def test_the_machine_s_memory_is_known():
    assert memory_size() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") > 2**28


FROZEN = """
import gc
from fdml.federation.machine_limits import tune_party_process, tune_server_process
before = len(gc.get_objects())
{tune}
print(gc.get_freeze_count() >= before > 10_000, len(gc.get_objects()) < 100)
"""


@pytest.mark.parametrize("tune", ["tune_party_process()", "tune_server_process()"])
def test_the_garbage_collector_passes_over_what_was_imported(tune):
    """A full collection of all libraries' objects took 50 to 100 ms, in which all parties waited."""
    ran = subprocess.run(
        [sys.executable, "-c", FROZEN.format(tune=tune)], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == ["True", "True"]


FAULTS = """
import resource
import numpy as np
from fdml.federation.machine_limits import keep_free_memory
{tune}

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        arrays = [np.ones(100_000) for _ in range(10)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

pages()
print(pages() < 2_000)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another allocator than glibc's")
@pytest.mark.parametrize(("tune", "is_kept"), [("assert keep_free_memory()", True), ("", False)])
def test_a_party_s_process_uses_memory_again_that_it_has_freed(tune, is_kept):
    code = FAULTS.format(tune=tune)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == [str(is_kept)]
