"""A Ray cluster on this machine, in a process of its own: the nodes are real, their addresses loopback.

python -m benchmarks.ray_nodes FOLDER CPUS

It prints its address, and for each line `add NAME` a node; it ends all it has started when its input ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from typing import Any

from ray.cluster_utils import Cluster

_PLACE: dict[str, Any] = {
    "node_ip_address": "127.0.0.1",
    "object_store_memory": 512 * 2**20,
    "include_dashboard": False,
}
_LOOK, _ENDING = 0.2, 20.0


class Nodes:
    """A cluster whose processes are looked after here: those that were killed are collected, as init would."""

    def __init__(self, folder: str, cpus: int) -> None:
        self._cpus = cpus
        os.environ["RAY_TMPDIR"] = folder  # Ray notes there, too, which cluster was started last
        head = {**_PLACE, "num_cpus": cpus, "no_monitor": True, "node_name": "head"}
        self._cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)
        self._started: list[Any] = []
        write_line({"address": self._cluster.address, **self._noted(self._cluster.head_node)})

    def add(self, name: str) -> None:
        """Another node."""
        write_line(self._noted(self._cluster.add_node(**_PLACE, num_cpus=self._cpus, node_name=name)))

    def _noted(self, node: Any) -> dict[str, Any]:
        there = [each.process for group in node.all_processes.values() for each in group]
        self._started += there
        return {
            "raylet": node.all_processes["raylet"][0].process.pid,
            "processes": [each.pid for each in there],
        }

    def collect(self) -> None:
        """Collect processes that have ended; their own children see then that they are gone."""
        for process in self._started:
            process.poll()

    def end(self) -> None:
        """Kill everything, by its number."""
        children = [pid for process in self._started for pid in _children(process.pid)]
        for process in self._started:
            process.kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait(_ENDING)


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def write_line(facts: dict[str, Any]) -> None:
    """Write facts as a line."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Start the head, then a node for each line, and end them when there are no more."""
    nodes = Nodes(sys.argv[1], int(sys.argv[2]))
    try:
        while True:
            nodes.collect()
            if select.select([sys.stdin], [], [], _LOOK)[0]:
                line = sys.stdin.readline()
                if not line:
                    return
                nodes.add(line.removeprefix("add ").strip())
    finally:
        nodes.end()


if __name__ == "__main__":
    main()
