"""A Ray node on this machine for benchmarks, on loopback and with a token of its own."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fdml.errors import FdmlError

_ENDING = 30.0


def environment() -> dict[str, str]:
    """What a Ray cluster on loopback is told, and whoever connects to it: with a token that nobody else has."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # so that it listens on loopback alone
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }


@contextmanager
def ray_node(cpus: int) -> Iterator[str]:
    """The address of a cluster of one node with so many CPUs; this process has its token meanwhile."""
    told = environment()
    before = {name: os.environ.get(name) for name in told}
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        os.environ.update(told)
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ray_nodes", folder, str(cpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            line = process.stdout.readline() if process.stdout is not None else b""
            if not line:
                raise FdmlError("Ray did not start a node; try `python -m benchmarks.ray_nodes FOLDER 1`")
            yield str(json.loads(line)["address"])
        finally:
            process.communicate(b"", timeout=_ENDING)
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
