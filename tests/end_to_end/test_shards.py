"""A party that trains in shards, in real runs of two parties: the same models, whoever works and whoever is killed."""

import os
import signal
import subprocess
from contextlib import contextmanager

import pytest

from tests.end_to_end.cluster import running, until

pytestmark = pytest.mark.slow
SHARDS = '[model]\nkind = "mlp"\nhidden = [4]\nshards = 3\n[workers]\nkind = "{}"\ncount = 2\n'


@contextmanager
def started(home, kind):
    with running(home, epochs=12, batches_per_block=4) as cluster:
        cluster.change("[align]", SHARDS.format(kind) + "[align]", "ann/party.toml")
        cluster.start()
        yield cluster


def workers_of(pid: int) -> list[int]:
    found = subprocess.run(
        ["pgrep", "-P", str(pid), "-f", "worker_process"], capture_output=True, text=True, check=False
    )
    return [int(line) for line in found.stdout.split()]


def finish_with_kills(cluster):
    """Kill a worker of ann, then ann itself, and start it again: its workers have ended with it."""
    cluster.await_step(10)
    first = workers_of(cluster["ann"].pid)
    assert len(first) == 2
    os.kill(first[0], signal.SIGKILL)
    cluster.await_step(16)
    left = workers_of(cluster["ann"].pid)
    cluster["ann"].kill()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in left), "its workers have ended")
    until(lambda: not cluster.statuses()["ann"].connected, "ann is away")
    cluster.join("ann")
    cluster.finish()


def test_the_models_are_the_same_with_threads_with_processes_and_after_kills(tmp_path):
    with started(tmp_path / "threads", "threads") as cluster:
        cluster.finish()
        expected = cluster.model_hashes()
    with started(tmp_path / "processes", "processes") as cluster:
        finish_with_kills(cluster)
        assert cluster.model_hashes() == expected
