"""Ray clusters for tests: real nodes on this machine's loopback, with a token, ended by their numbers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.ray_cluster import environment

ROOT = Path(__file__).parents[2]
ENVIRONMENT = environment()
_DEADLINE = 60.0


class RayNodes:
    """A cluster that begins with its head; further nodes by name."""

    def __init__(self, folder: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ray_nodes", folder, "4"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT},
            cwd=ROOT,
            text=True,
        )
        head = self._answer()
        self.address = str(head["address"])
        self.raylets = {"head": head["raylet"]}
        self._started = [self._process.pid, *head["processes"]]

    def add(self, name: str) -> None:
        """Another node."""
        self._process.stdin.write(f"add {name}\n")
        self._process.stdin.flush()
        node = self._answer()
        self.raylets[name] = node["raylet"]
        self._started += node["processes"]

    def _answer(self) -> dict[str, object]:
        line = self._process.stdout.readline()
        assert line, "the cluster has ended"
        return json.loads(line)

    def workers(self) -> list[int]:
        """The processes of fdml's actors, on all nodes."""
        there = [pid for raylet in self.raylets.values() for pid in children(raylet)]
        return [pid for pid in there if "RayWorker" in title(pid)]

    def node_of(self, pid: int) -> str:
        """The node that has started a process."""
        return next(name for name, raylet in self.raylets.items() if pid in children(raylet))

    def kill(self, name: str) -> None:
        """End a node as a power cut would: its raylet and all that it has started."""
        there = children(self.raylets[name])
        for pid in (self.raylets.pop(name), *there):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_raylet(self, name: str) -> None:
        """End a node's raylet alone: its workers go on for a while, and Ray does not know yet."""
        os.kill(self.raylets.pop(name), signal.SIGKILL)

    def close(self) -> None:
        """End all that was started, by its number."""
        left = [pid for raylet in self.raylets.values() for pid in children(raylet)] + self._started
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        wait_until(lambda: not any(is_running(pid) for pid in left), "all processes of the cluster have ended")


@contextlib.contextmanager
def ray_nodes(*names: str) -> Iterator[RayNodes]:
    """A cluster with these nodes besides its head."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        cluster = RayNodes(folder)
        try:
            for name in names:
                cluster.add(name)
            yield cluster
        finally:
            cluster.close()


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def title(pid: int) -> str:
    """What a process calls itself; nothing where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie of its parent's."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true, what, seconds=_DEADLINE):
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)
