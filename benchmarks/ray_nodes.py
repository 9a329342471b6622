"""A Ray cluster on this machine, in a process of its own: the nodes are real, their addresses loopback.

python -m benchmarks.ray_nodes FOLDER CPUS

It prints its address, and for each line `add NAME` a node; it ends all it has started when its input ends.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ray.cluster_utils import Cluster

_PLACE = {"node_ip_address": "127.0.0.1", "object_store_memory": 512 * 2**20, "include_dashboard": False}


def told(node: Any) -> dict[str, Any]:
    """The processes of a node."""
    processes = [each.process.pid for group in node.all_processes.values() for each in group]
    return {"raylet": node.all_processes["raylet"][0].process.pid, "processes": processes}


def say(facts: dict[str, Any]) -> None:
    """Write facts as a line."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Start the head, then a node for each line."""
    folder, cpus = sys.argv[1], int(sys.argv[2])
    head = {**_PLACE, "num_cpus": cpus, "temp_dir": folder, "no_monitor": True, "node_name": "head"}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    say({"address": cluster.address, **told(cluster.head_node)})
    for line in sys.stdin:
        name = line.removeprefix("add ").strip()
        say(told(cluster.add_node(**_PLACE, num_cpus=cpus, node_name=name)))
    cluster.shutdown()


if __name__ == "__main__":
    main()
