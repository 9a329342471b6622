"""A party in shards over Ray nodes, in real runs of two parties: the same models, whatever is killed."""

import os
import signal
from contextlib import contextmanager

import pytest

from tests.cluster.ray_cluster import ENVIRONMENT, is_running, ray_nodes, wait_until
from tests.end_to_end.cluster import Terminal, running, until

pytestmark = pytest.mark.slow
SHARDS = '[model]\nkind = "mlp"\nhidden = [4]\nshards = 3\n[workers]\nkind = "{}"\n{}\n'


@pytest.fixture(scope="module")
def nodes():
    with ray_nodes() as found:
        yield found


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The models with threads and with processes."""
    found = [hashes(tmp_path_factory.mktemp(kind) / "run", kind, "count = 2") for kind in ("threads", "processes")]
    assert found[0] == found[1]
    return found[0]


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", ENVIRONMENT["RAY_AUTH_TOKEN"])


@contextmanager
def started(home, kind, more):
    with running(home, epochs=12, batches_per_block=4) as cluster:
        cluster.change("[align]", SHARDS.format(kind, more) + "[align]", "ann/party.toml")
        cluster.serve()
        join(cluster)
        cluster.join("bob")
        yield cluster


def join(cluster):
    """Start the party that has shards, with the environment that this process has now."""
    cluster.join("ann", kind=Terminal)


def hashes(home, kind, more):
    with started(home, kind, more) as cluster:
        cluster.finish()
        return cluster.model_hashes()


def over_ray(home, nodes):
    return started(home, "ray", f'address = "{nodes.address}"\nseconds = 60.0')


def node_of(text, pid):
    """The node of a worker, as the party has said when it was lost."""
    said = " ".join(text.split())
    return said.partition(f" at 127.0.0.1, process {pid})")[0].rpartition("(")[2]


def test_one_node_two_and_three_give_the_models_of_threads_and_processes(tmp_path, nodes, expected):
    for count, name in enumerate((None, "second", "third"), 1):
        if name is not None:
            nodes.add(name)
        with over_ray(tmp_path / str(count), nodes) as cluster:
            cluster.await_step(1)
            working = nodes.workers()
            assert len(working) == 3
            assert len({nodes.node_of(pid) for pid in working}) == count
            cluster.finish()
            assert cluster.model_hashes() == expected
        wait_until(lambda: nodes.workers() == [], "the workers have ended with their party")


def test_the_models_are_the_same_after_kills_of_a_worker_a_node_and_the_party(tmp_path, nodes, expected):
    nodes.add("lost")
    with over_ray(tmp_path / "run", nodes) as cluster:
        cluster.await_step(5)
        first, *_ = nodes.workers()
        os.kill(first, signal.SIGKILL)
        cluster.await_step(12)
        assert node_of(cluster["ann"].text, first) in nodes.raylets
        nodes.kill("lost")
        cluster.await_step(22)
        assert "(lost at 127.0.0.1, process " in " ".join(cluster["ann"].text.split())
        left = nodes.workers()
        cluster["ann"].kill()
        wait_until(lambda: not any(is_running(pid) for pid in left), "its workers have ended")
        until(lambda: not cluster.statuses()["ann"].connected, "ann is away")
        assert cluster.statuses()["ann"].served < 60
        join(cluster)
        cluster.finish()
        assert cluster.model_hashes() == expected
