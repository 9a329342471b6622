"""A party whose files and shards are worked on by Ray nodes, in real runs: the same models, whatever is killed."""

import os
import signal
from contextlib import contextmanager

import pytest

from tests.cluster.ray_cluster import ENVIRONMENT, is_running, ray_nodes, wait_until
from tests.end_to_end.cluster import Terminal, running, until
from tests.end_to_end.test_many_files import into_parquet, kept

pytestmark = pytest.mark.slow
SHARDS = '[model]\nkind = "mlp"\nhidden = [4]\nshards = 3\n[workers]\nkind = "{}"\n{}\n'


@pytest.fixture(scope="module")
def nodes():
    with ray_nodes() as found:
        yield found


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The models with processes, which are those with threads (test_shards.py), and what one file leaves behind."""
    home = tmp_path_factory.mktemp("processes") / "run"
    with started(home, "processes", "count = 2") as cluster:
        cluster.finish()
        models = cluster.model_hashes()
    return models, kept(home)


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", ENVIRONMENT["RAY_AUTH_TOKEN"])


@contextmanager
def started(home, kind, more, files=1):
    with running(home, epochs=12, batches_per_block=4) as cluster:
        into_parquet(cluster, files)
        cluster.change("[align]", SHARDS.format(kind, more) + "[align]", "ann/party.toml")
        cluster.serve()
        join(cluster)
        cluster.join("bob")
        yield cluster


def join(cluster):
    """Start the party that has shards, with the environment that this process has now."""
    cluster.join("ann", kind=Terminal)


def over_ray(home, nodes, count, files=1):
    return started(home, "ray", f'address = "{nodes.address}"\nseconds = 60.0\ncount = {count}', files)


def await_told(party, node, pid):
    """Wait until the party has said that it lost this worker of this node."""
    lost = f"({node} at 127.0.0.1, process {pid}) is gone"
    wait_until(lambda: lost in " ".join(party.text.split()), f"the worker on {node} is told")


@contextmanager
def held(pid):
    """A process that does nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_one_node_and_two_give_the_models_of_processes(tmp_path, nodes, expected):
    for count in (1, 2):
        if count == 2:
            nodes.add("second")
        with over_ray(tmp_path / str(count), nodes, count) as cluster:
            cluster.await_step(1)
            working = nodes.workers()
            assert len(working) == len({nodes.node_of(pid) for pid in working}) == count
            cluster.finish()
            assert cluster.model_hashes() == expected[0]
        wait_until(lambda: nodes.workers() == [], "the workers have ended with their party")


def test_three_nodes_give_them_of_200_files_too_after_kills_of_a_worker_a_node_and_the_party(tmp_path, nodes, expected):
    for name in {"second", "lost"} - nodes.raylets.keys():
        nodes.add(name)
    with over_ray(tmp_path / "run", nodes, 3, files=200) as cluster:
        cluster.await_step(5)
        with held(cluster["bob"].pid):
            wait_until(lambda: len(nodes.workers()) == 3, "those that have read the files have ended")
            working = {nodes.node_of(pid): pid for pid in nodes.workers()}
            assert working.keys() == {"head", "second", "lost"}
            os.kill(working["second"], signal.SIGKILL)
        await_told(cluster["ann"], "second", working["second"])
        nodes.kill("lost")
        await_told(cluster["ann"], "lost", working["lost"])
        with held(cluster["bob"].pid):
            wait_until(lambda: len(nodes.workers()) == 3, "lost workers are replaced")
            left = nodes.workers()
            cluster["ann"].kill()
        wait_until(lambda: not any(is_running(pid) for pid in left), "its workers have ended")
        until(lambda: not cluster.statuses()["ann"].connected, "ann is away")
        assert cluster.statuses()["ann"].served < 60
        join(cluster)
        cluster.finish()
        assert (cluster.model_hashes(), kept(cluster.home)) == expected
